// Tests verify/emulator without torch. With --fault NAME it runs a broken kernel instead, which the
// build with the sanitizer for that fault must report.
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

int passed = 0;
int failed = 0;

}  // namespace

void check(bool right, const std::string& what) {
  ++(right ? passed : failed);
  if (!right) std::printf("FAILED: %s\n", what.c_str());
}

void expect_error(const std::string& what, const std::vector<std::string>& parts,
                  const std::function<void()>& launch) {
  std::string message;
  try {
    launch();
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  bool right = !message.empty();
  for (const std::string& part : parts) right &= message.find(part) != std::string::npos;
  check(right, what + ", got: " + message);
}

void in_every_order(const std::function<void(const std::string&)>& body) {
  emulator::set_order(emulator::Order::random, 3);
  body("random");
  emulator::set_order(emulator::Order::reverse);
  body("reverse");
  emulator::set_order(emulator::Order::forward);
  body("forward");
}

namespace {

void test_everywhere(const std::string& order) {
  test_results(order);
  test_clusters(order);
}

}  // namespace

int run_all() {
  emulator::set_order(emulator::Order::forward);
  test_everywhere("forward");
  emulator::set_order(emulator::Order::reverse);
  test_everywhere("reverse");
  for (int seed = 0; seed < 3; ++seed) {
    emulator::set_order(emulator::Order::random, seed);
    test_everywhere("random, seed " + std::to_string(seed));
  }
  emulator::set_order(emulator::Order::forward);
  test_scheduling();
  test_misuse();
  test_cluster_misuse();
  test_numbers();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace rotcell::tests

int main(int count, char** arguments) {
  if (count == 1) return rotcell::tests::run_all();
  if (count == 3 && std::string(arguments[1]) == "--fault") {
    if (rotcell::tests::run_fault(arguments[2])) return 0;
    std::fprintf(stderr, "no fault is called %s\n", arguments[2]);
    return 2;
  }
  std::fprintf(stderr, "usage: emulator_test [--fault NAME]\n");
  return 2;
}
