// What Python asks about this build. Knows nothing of torch, and no layer needs it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cpu/runtime/contention.h"
#include "cpu/runtime/instruction_set.h"
#include "cpu/runtime/processors.h"

namespace {

std::chrono::nanoseconds seconds(double count) {
  return std::chrono::nanoseconds(static_cast<int64_t>(count * 1e9));
}

rotcell::cpu::Contention::Clock::time_point at_second(double count) {
  return rotcell::cpu::Contention::Clock::time_point(seconds(count));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Facts about this build of rotcell. The ops are in librotcell_cpu.so.";
  m.def("instruction_set", rotcell::cpu::instruction_set_name,
        "The instruction set that the CPU kernels use.");
  m.def("instruction_sets", rotcell::cpu::instruction_set_names,
        "All instruction sets built in that this machine runs, narrowest first.");
  m.def("cgroup_processors", rotcell::cpu::cgroup_processors, pybind11::arg("membership"),
        pybind11::arg("root"),
        "The processors that cgroups leave a process; None without a quota.");
  m.def("processors", rotcell::cpu::processors, "The processors that this process may use.");
  m.def("runnable_elsewhere", rotcell::cpu::runnable_elsewhere,
        "The threads of other programs that run or wait for a processor.");
  using rotcell::cpu::Contention;
  pybind11::class_<Contention> contention(m, "Contention");
  pybind11::enum_<Contention::Advice>(contention, "Advice")
      .value("WAIT_FOR_EACH_OTHER", Contention::Advice::kWaitForEachOther)
      .value("WORK_ALONE", Contention::Advice::kWorkAlone)
      .value("LOOK_FIRST", Contention::Advice::kLookFirst);
  contention.def(pybind11::init<>())
      .def(
          "advice",
          [](const Contention& contention, double now) {
            return contention.advice(at_second(now));
          },
          pybind11::arg("now"))
      .def(
          "put_off", [](Contention& contention, double now) { contention.put_off(at_second(now)); },
          pybind11::arg("now"))
      .def(
          "learn",
          [](Contention& contention, double worked, double slept, double now) {
            contention.learn(seconds(worked), seconds(slept), at_second(now));
          },
          pybind11::arg("worked"), pybind11::arg("slept"), pybind11::arg("now"));
}
