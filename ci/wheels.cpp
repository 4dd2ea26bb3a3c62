// Linked into the libraries of a wheel, so that they run with older C and C++ libraries than those that they are linked
// against, down to manylinux_2_28: as C into libgoccl.so, as C++ into the shims. Its functions have the names of those
// that are new in newer libraries, and no other library sees them.

// What glibc 2.32 and 2.34 moved into libc.so.6, and gcc 12 made anew, is still there in its first version: jump there.
#ifdef __x86_64__
#define JUMP(to) "jmp " to "@PLT"
#define GLIBC(version) "GLIBC_" version
#else
#define JUMP(to) "b " to
#define GLIBC(version) "GLIBC_2.17"  // the first of arm64
#endif
#define MOVED_AS(name, old, version)                             \
  __asm__(".symver old_" #name ", " #old "@" version "\n"        \
          ".text\n"                                              \
          ".globl " #name "\n"                                   \
          ".hidden " #name "\n"                                  \
          ".type " #name ", %function\n" #name ": " JUMP("old_" #name))
#define MOVED(name, version) MOVED_AS(name, name, version)

MOVED(dlerror, GLIBC("2.2.5"));
MOVED(dlopen, GLIBC("2.2.5"));
MOVED(dlsym, GLIBC("2.2.5"));
MOVED(pthread_sigmask, GLIBC("2.2.5"));

#ifndef __cplusplus

MOVED(dlclose, GLIBC("2.2.5"));
MOVED(pthread_attr_getstack, GLIBC("2.2.5"));
MOVED(pthread_attr_getstacksize, GLIBC("2.2.5"));
MOVED(pthread_create, GLIBC("2.2.5"));
MOVED(pthread_getattr_np, GLIBC("2.2.5"));
MOVED(pthread_key_create, GLIBC("2.2.5"));
MOVED(pthread_setspecific, GLIBC("2.2.5"));
MOVED_AS(res_search, __res_search, GLIBC("2.2.5"));

#else

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <new>
#include <sstream>

MOVED(pthread_setname_np, GLIBC("2.12"));
MOVED(_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "GLIBCXX_3.4.11");

// What older libraries lack is made of what they have.
#define HIDDEN __attribute__((visibility("hidden")))
#define NAMED(name) __asm__(name) HIDDEN

using Buffer = std::stringbuf;
using Pointer = void*;  // all that is in a std::exception_ptr

// glibc 2.32: where it is true, reference counts do without atomic operations.
extern "C" HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.30. Without it the time of day decides, as condition_variable did it before.
extern "C" HIDDEN int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                                             const timespec* until) {
  using function = decltype(&pthread_cond_clockwait);
  static const auto have = reinterpret_cast<function>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (have != nullptr) return have(cond, mutex, clock, until);
  timespec now, at;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_sec += until->tv_sec - now.tv_sec;
  at.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (at.tv_nsec < 0) at.tv_sec--, at.tv_nsec += 1000000000;
  if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
  return pthread_cond_timedwait(cond, mutex, &at);
}

// gcc 9: std::ostringstream().
void open(std::ostringstream*, std::ios_base::openmode)
    __asm__("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
void open(std::ostringstream*) NAMED("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void open(std::ostringstream* stream) { open(stream, std::ios_base::out); }

// gcc 11: std::stringbuf::str() of a lasting and of a passing one.
std::string text(const Buffer*) __asm__("_ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string lasting(const Buffer*) NAMED("_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string lasting(const Buffer* buffer) { return text(buffer); }
std::string passing(Buffer*) NAMED("_ZNOSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string passing(Buffer* buffer) { return text(buffer); }

// gcc 11: what the copy and the destructor of std::exception_ptr call, which were no part of headers before.
void copy(Pointer*, const Pointer*) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void destroy(Pointer*) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
void add(Pointer*) NAMED("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void add(Pointer* self) {
  Pointer another;
  copy(&another, self);
}
void release(Pointer*) NAMED("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void release(Pointer* self) {
  destroy(self);
  *self = nullptr;
}

// gcc 11.
[[noreturn]] void bad_length() NAMED("_ZSt28__throw_bad_array_new_lengthv");
void bad_length() { throw std::bad_array_new_length(); }

#endif
