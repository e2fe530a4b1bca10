#include "ptx/module.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "ptx/operations.h"

namespace rotcell::ptx {
namespace {

using std::string_view;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

string_view trimmed(string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Removes and returns the first word of the text.
string_view take_word(string_view& text) {
  text = trimmed(text);
  const auto end = std::find_if(text.begin(), text.end(), is_space);
  const string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text = trimmed(text.substr(word.size()));
  return word;
}

std::string without_comments(std::string text) {
  for (size_t at = 0; (at = text.find("//", at)) != std::string::npos;) {
    for (; at < text.size() && text[at] != '\n'; ++at) text[at] = ' ';
  }
  return text;
}

class Reader {
 public:
  Reader(Kernel& kernel, string_view text, size_t begin)
      : kernel_(kernel),
        text_(text),
        at_(begin),
        line_(1 + static_cast<int>(std::count(text.begin(), text.begin() + begin, '\n'))) {}

  void read() {
    read_head();
    for (int depth = 1; depth > 0;) {
      skip_space();
      if (peek() == '{') {
        ++depth;
        advance(1);
      } else if (peek() == '}') {
        --depth;
        advance(1);
      } else if (peek() == '$') {
        const string_view label = take_until(':');
        labels_[std::string(trimmed(label))] = static_cast<int>(kernel_.instructions.size());
      } else {
        const int line = line_;
        read_statement(take_until(';'), line);
      }
    }
    for (const auto& [instruction, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) fail("no label " + label, kernel_.instructions[instruction].line);
      kernel_.instructions[instruction].target = found->second;
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what, int line) const {
    throw std::runtime_error(kernel_.file + ":" + std::to_string(line) + ": " + what);
  }

  char peek() const { return text_.at(at_); }

  void advance(size_t characters) {
    for (size_t i = 0; i < characters; ++i) line_ += text_[at_++] == '\n';
  }

  void skip_space() {
    while (is_space(peek())) advance(1);
  }

  // The text before the character, which is consumed.
  string_view take_until(char end) {
    const size_t found = text_.find(end, at_);
    if (found == string_view::npos) fail("the end is missing", line_);
    const string_view taken = text_.substr(at_, found - at_);
    advance(found + 1 - at_);
    return taken;
  }

  // .entry NAME(.param .align 8 .b8 NAME_param_0[256]) .maxntid 512, 1, 1 ... {
  void read_head() {
    take_until('(');
    const string_view parameter = take_until(')');
    const size_t bracket = parameter.find('[');
    const size_t name = parameter.find_last_of(" \t", bracket) + 1;
    if (bracket == string_view::npos || parameter.find(',') != string_view::npos)
      fail("a kernel takes one struct", line_);
    symbols_.emplace_back(parameter.substr(name, bracket - name));
    kernel_.parameter_bytes = std::strtoul(parameter.data() + bracket + 1, nullptr, 10);
    const string_view directives = take_until('{');
    if (const size_t at = directives.find(".maxntid"); at != string_view::npos)
      kernel_.most_threads =
          static_cast<unsigned>(std::strtoul(directives.data() + at + 8, nullptr, 10));
  }

  void read_statement(string_view statement, int line) {
    string_view rest = statement;
    string_view word = take_word(rest);
    if (word == ".pragma") return;
    if (word == ".reg") return declare(rest, line);
    Instruction instruction;
    instruction.line = line;
    if (word.starts_with('@')) {
      word.remove_prefix(1);
      instruction.is_guarded = true;
      instruction.guard_negated = word.starts_with('!');
      if (instruction.guard_negated) word.remove_prefix(1);
      instruction.guard = register_named(word, line);
      word = take_word(rest);
    }
    std::string opcode(word);
    const bool braces = rest.find('{') != string_view::npos;
    if (opcode.starts_with("mov.b") && braces)
      opcode = (rest.starts_with('{') ? "unpack." : "pack.") + opcode.substr(4);
    instruction.operation = find_operation(opcode);
    if (instruction.operation == nullptr) fail("unknown instruction " + opcode, line);
    if (instruction.operation->flow == Flow::branch) {
      branches_.emplace_back(kernel_.instructions.size(), std::string(trimmed(rest)));
    } else {
      read_operands(instruction, rest);
    }
    kernel_.instructions.push_back(std::move(instruction));
  }

  // .pred %p<130>, or .b32 %temp
  void declare(string_view rest, int line) {
    const string_view type = take_word(rest);
    const Width width = type == ".pred"        ? Width::predicate
                        : type.ends_with("64") ? Width::eight
                                               : Width::four;
    if (type.ends_with("128")) fail("registers of 128 bits", line);
    const size_t bracket = rest.find('<');
    if (bracket == string_view::npos) {
      add_register(std::string(rest), width, line);
      return;
    }
    const unsigned long count = std::strtoul(rest.data() + bracket + 1, nullptr, 10);
    const std::string prefix(rest.substr(0, bracket));
    for (unsigned long i = 0; i < count; ++i) add_register(prefix + std::to_string(i), width, line);
  }

  // Nested blocks may declare a name again.
  Operand add_register(const std::string& name, Width width, int line) {
    const Operand made{kernel_.words, kernel_.registers, width, false};
    const auto [found, is_new] = registers_.try_emplace(name, made);
    if (!is_new) {
      if (found->second.width != width) fail("another " + name, line);
      return found->second;
    }
    kernel_.registers += 1;
    kernel_.words += words_of(width);
    return made;
  }

  // Even, so that numbers of eight bytes are aligned.
  static uint32_t words_of(Width width) {
    return width == Width::predicate ? 2 : width == Width::eight ? 2 * warp_size : warp_size;
  }

  Operand register_named(string_view name, int line) {
    static const std::map<string_view, Special> specials = {
        {"%tid.x", Special::thread},    {"%ctaid.x", Special::block}, {"%ntid.x", Special::threads},
        {"%nctaid.x", Special::blocks}, {"%tid.y", Special::zero},    {"%tid.z", Special::zero},
        {"%ctaid.y", Special::zero},    {"%ctaid.z", Special::zero},  {"%nctaid.y", Special::one},
        {"%nctaid.z", Special::one}};
    if (const auto special = specials.find(name); special != specials.end()) {
      const std::string own_name = "special " + std::to_string(static_cast<int>(special->second));
      return kernel_.specials[special->second] = add_register(own_name, Width::four, line);
    }
    const auto found = registers_.find(std::string(name));
    if (found == registers_.end()) fail("no register " + std::string(name), line);
    return found->second;
  }

  void read_operands(Instruction& instruction, string_view rest) {
    std::vector<std::string> words(1);
    for (const char c : rest) {
      if (c == ',' || c == '|') {
        words.emplace_back();
      } else if (!is_space(c) && c != '{' && c != '}') {
        words.back() += c;
      }
    }
    if (words.back().empty()) words.pop_back();
    const std::vector<Width>& widths = instruction.operation->operands;
    if (words.size() != widths.size())
      fail("takes " + std::to_string(widths.size()) + " operands, not " + std::string(rest),
           instruction.line);
    for (size_t i = 0; i < words.size(); ++i)
      instruction.operands.push_back(read_operand(words[i], widths[i], instruction.line));
  }

  Operand read_operand(string_view word, Width width, int line) {
    int64_t offset = 0;
    if (word.starts_with('[')) {
      word = word.substr(1, word.size() - 2);
      if (const size_t plus = word.find('+'); plus != string_view::npos) {
        offset = std::strtoll(word.data() + plus + 1, nullptr, 10);
        word = word.substr(0, plus);
      }
    }
    Operand operand =
        word.starts_with('%') ? register_named(word, line) : constant(value_of(word, line), width);
    const bool either = width == Width::either && operand.width != Width::predicate;
    if (operand.width != width && !either) fail(std::string(word) + " has another size", line);
    operand.offset = offset;
    return operand;
  }

  uint64_t value_of(string_view word, int line) const {
    // Parameters and shared memory are separate address spaces that begin at 0.
    const bool is_symbol = std::find(symbols_.begin(), symbols_.end(), word) != symbols_.end() ||
                           word.find("rotcell_shared") != string_view::npos;
    if (is_symbol) return 0;
    const std::string text(word);
    char* end = nullptr;
    uint64_t value = 0;
    if (text.starts_with("0f") || text.starts_with("0d")) {
      value = std::strtoull(text.c_str() + 2, &end, 16);
    } else {
      value = text.starts_with('-') ? static_cast<uint64_t>(std::strtoll(text.c_str(), &end, 0))
                                    : std::strtoull(text.c_str(), &end, 0);
    }
    if (text.empty() || *end != '\0') fail("unknown operand " + text, line);
    return value;
  }

  Operand constant(uint64_t value, Width width) {
    if (width == Width::either) width = Width::eight;
    if (width == Width::predicate) value = value != 0 ? ~uint64_t{0} : 0;
    const auto [found, is_new] =
        constants_.try_emplace({value, width}, static_cast<uint32_t>(kernel_.constants.size()));
    if (is_new) {
      for (uint32_t word = 0; word < words_of(width); ++word) {
        const bool is_high = width == Width::eight && word % 2 == 1;
        kernel_.constants.push_back(static_cast<uint32_t>(is_high ? value >> 32 : value));
      }
    }
    return {found->second, 0, width, true};
  }

  Kernel& kernel_;
  string_view text_;
  size_t at_;
  int line_;
  std::vector<std::string> symbols_;  // of parameters
  std::map<std::string, Operand> registers_;
  std::map<std::pair<uint64_t, Width>, uint32_t> constants_;
  std::map<std::string, int> labels_;
  std::vector<std::pair<size_t, std::string>> branches_;
};

}  // namespace

Module::Module(std::string file, std::string text)
    : file_(std::move(file)), text_(without_comments(std::move(text))) {
  if (const size_t at = text_.find(".target sm_"); at != std::string::npos)
    target_ = std::atoi(text_.c_str() + at + 11);
  static constexpr string_view word = ".entry ";
  for (size_t at = 0; (at = text_.find(word, at)) != std::string::npos;) {
    at += word.size();
    entries_[text_.substr(at, text_.find('(', at) - at)] = at;
  }
}

const Kernel& Module::kernel(const std::string& symbol) {
  std::unique_ptr<Kernel>& kernel = kernels_[symbol];
  if (kernel == nullptr) {
    auto made = std::make_unique<Kernel>();
    made->name = symbol;
    made->file = file_;
    Reader(*made, text_, entries_.at(symbol)).read();
    kernel = std::move(made);
  }
  return *kernel;
}

}  // namespace rotcell::ptx
