// Faults made on purpose: ci/sanitize.py calls them to see that each sanitizer reports.
#include <thread>

extern "C" {

int harmless() { return 1; }

int read_behind(int size) {
  char* memory = new char[size]();
  const int found = static_cast<volatile char*>(memory)[size];
  delete[] memory;
  return found;
}

int shift_too_far(int bits) { return 1 << bits; }

int race() {
  int count = 0;
  auto add = [&count] { for (int i = 0; i < 1000; ++i) *static_cast<volatile int*>(&count) += 1; };
  std::thread one(add), other(add);
  one.join();
  other.join();
  return count;
}
}
