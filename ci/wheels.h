// Included in front of each file of a shim for a wheel: names of the C++ library as older systems have them, so that
// the wheel runs there too. gcc 12 gives condition_variable::wait a new version; the old one is the same function.
__asm__(".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
        "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
