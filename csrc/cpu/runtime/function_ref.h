// A function that is called before the caller returns: no copy of it is made.
#pragma once

#include <type_traits>

namespace rotcell::cpu {

template <class Signature>
class FunctionRef;
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Body>
    requires(!std::is_same_v<std::remove_cvref_t<Body>, FunctionRef>)
  FunctionRef(const Body& body)  // NOLINT: a conversion is what this is for
      : body_(&body), call_([](const void* known, Arguments... arguments) -> Result {
          return (*static_cast<const Body*>(known))(arguments...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(body_, arguments...); }

 private:
  const void* body_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace rotcell::cpu
