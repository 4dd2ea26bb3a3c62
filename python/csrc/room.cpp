#include "room.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

namespace goccl {

namespace {

// Threads that wait until they are released.
class Threads {
 public:
  int start(int most) {
    while (static_cast<int>(started_.size()) < most) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, wait, this) != 0) break;
      started_.push_back(thread);
    }
    return static_cast<int>(started_.size());
  }
  ~Threads() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      released_ = true;
    }
    all_.notify_all();
    for (pthread_t thread : started_) pthread_join(thread, nullptr);
  }

 private:
  static void* wait(void* self) {
    auto* threads = static_cast<Threads*>(self);
    std::unique_lock<std::mutex> lock(threads->mutex_);
    threads->all_.wait(lock, [threads] { return threads->released_; });
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable all_;
  bool released_ = false;
  std::vector<pthread_t> started_;
};

int open_files(int most) {
  std::vector<int> opened;
  while (static_cast<int>(opened.size()) < most) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) break;
    opened.push_back(fd);
  }
  for (int fd : opened) close(fd);
  return static_cast<int>(opened.size());
}

} // namespace

std::tuple<bool, int, int> try_room(size_t bytes, int threads, int files) {
  void* space = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const bool mapped = space != MAP_FAILED;
  int started = 0;
  if (mapped) { // their stacks come on top of it
    started = Threads().start(threads);
    munmap(space, bytes);
  }
  return {mapped, started, open_files(files)};
}

} // namespace goccl
