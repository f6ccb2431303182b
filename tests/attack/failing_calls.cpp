// Preloaded into a program by attack.py, it makes the program's file system fail, in whatever thread a call comes:
//   FAULT_FILES=A:B      the calls that count: those on files whose path contains A or B
//   FAULT_CALLS=FILE     the number of such calls, 8 bytes, is kept here
//   FAULT_AT=K           the K-th of them fails, counted from 1; with FAULT_LASTS=1 all after it fail too
//   FAULT_ERRNO=E        with this error; EIO if it is left out
//   FAULT_KILLS=1        it does not fail: the program is killed in its place
//   FAULT_DISK=BYTES     a small disk: what would write more than BYTES in all fails with ENOSPC
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

struct iovec;
struct stat;
struct timespec;

namespace {

int64_t setting(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

// In a file, so that the number outlives however the program ends.
std::atomic<int64_t>* shared_count() {
  static std::atomic<int64_t> own{0};
  const char* const path = std::getenv("FAULT_CALLS");
  const long fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT, 0666) : -1;
  if (fd < 0 || syscall(SYS_ftruncate, fd, sizeof own) != 0) return &own;
  const long page = syscall(SYS_mmap, nullptr, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page < 0 ? &own : reinterpret_cast<std::atomic<int64_t>*>(page);
}

std::vector<std::string> parts_of(const char* list) {
  std::vector<std::string> parts;
  std::istringstream rest(list ? list : "");
  for (std::string part; std::getline(rest, part, ':');) parts.push_back(part);
  return parts;
}

struct Faults {
  const std::vector<std::string> files = parts_of(std::getenv("FAULT_FILES"));
  const int64_t at = setting("FAULT_AT", INT64_MAX);
  const bool lasts = setting("FAULT_LASTS", 0) != 0;
  const bool kills = setting("FAULT_KILLS", 0) != 0;
  const int error = static_cast<int>(setting("FAULT_ERRNO", EIO));
  const int64_t disk = setting("FAULT_DISK", INT64_MAX);
  std::atomic<int64_t>* const calls = shared_count();
  std::atomic<int64_t> written{0};
};

Faults& faults() {
  static Faults* const faults = new Faults;  // never destroyed: calls come until the very end
  return *faults;
}

bool counts(const char* path) {
  if (!path) return false;
  for (const std::string& part : faults().files) {
    if (std::strstr(path, part.c_str())) return true;
  }
  return false;
}

bool counts(int fd) {
  char link[32], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = 0;
  return counts(path);
}

// Whether a call on `file`, a path or a descriptor, fails; then errno is set.
template <class File>
bool fails(File file, size_t bytes_to_write = 0) {
  if (!counts(file)) return false;
  Faults& f = faults();
  const int64_t call = ++*f.calls;
  const int64_t written = f.written += static_cast<int64_t>(bytes_to_write);
  if (call == f.at && f.kills) raise(SIGKILL);
  if (call == f.at || (f.lasts && call > f.at)) {
    errno = f.error;
    return true;
  }
  if (bytes_to_write == 0 || written <= f.disk) return false;
  errno = ENOSPC;
  return true;
}

template <class Result>
Result failure() {
  if constexpr (std::is_same_v<Result, void*>) {
    return MAP_FAILED;
  } else if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else {
    return -1;
  }
}

}  // namespace

// The labels give the functions the C library's names without their declarations, whose attributes differ between
// systems. The last argument says what fails() looks at.
#define FAILING(result, name, parameters, arguments, ...)                                     \
  extern "C" result failing_##name parameters __asm__(#name);                                 \
  extern "C" result failing_##name parameters {                                               \
    static const auto real = reinterpret_cast<result(*) parameters>(dlsym(RTLD_NEXT, #name)); \
    return fails(__VA_ARGS__) ? failure<result>() : real arguments;                           \
  }

FAILING(int, open, (const char* path, int flags, unsigned mode), (path, flags, mode), path)
FAILING(int, open64, (const char* path, int flags, unsigned mode), (path, flags, mode), path)
FAILING(int, openat, (int folder, const char* path, int flags, unsigned mode), (folder, path, flags, mode), path)
FAILING(int, openat64, (int folder, const char* path, int flags, unsigned mode), (folder, path, flags, mode), path)
FAILING(FILE*, fopen, (const char* path, const char* mode), (path, mode), path)
FAILING(FILE*, fopen64, (const char* path, const char* mode), (path, mode), path)
FAILING(ssize_t, read, (int fd, void* buffer, size_t bytes), (fd, buffer, bytes), fd)
FAILING(ssize_t, pread, (int fd, void* buffer, size_t bytes, off_t at), (fd, buffer, bytes, at), fd)
FAILING(ssize_t, pread64, (int fd, void* buffer, size_t bytes, off_t at), (fd, buffer, bytes, at), fd)
FAILING(ssize_t, write, (int fd, const void* buffer, size_t bytes), (fd, buffer, bytes), fd, bytes)
FAILING(ssize_t, writev, (int fd, const iovec* parts, int count), (fd, parts, count), fd, 1)
FAILING(ssize_t, pwrite, (int fd, const void* buffer, size_t bytes, off_t at), (fd, buffer, bytes, at), fd, bytes)
FAILING(ssize_t, pwrite64, (int fd, const void* buffer, size_t bytes, off_t at), (fd, buffer, bytes, at), fd, bytes)
FAILING(int, fsync, (int fd), (fd), fd)
FAILING(int, fdatasync, (int fd), (fd), fd)
FAILING(int, ftruncate, (int fd, off_t size), (fd, size), fd)
FAILING(int, ftruncate64, (int fd, off_t size), (fd, size), fd)
FAILING(int, fchmod, (int fd, unsigned mode), (fd, mode), fd)
FAILING(int, flock, (int fd, int operation), (fd, operation), fd)
FAILING(void*, mmap, (void* where, size_t size, int access, int kind, int fd, off_t at),
        (where, size, access, kind, fd, at), fd)
FAILING(void*, mmap64, (void* where, size_t size, int access, int kind, int fd, off_t at),
        (where, size, access, kind, fd, at), fd)
FAILING(int, fstat, (int fd, struct stat* into), (fd, into), fd)
FAILING(int, fstat64, (int fd, struct stat* into), (fd, into), fd)
FAILING(int, stat, (const char* path, struct stat* into), (path, into), path)
FAILING(int, stat64, (const char* path, struct stat* into), (path, into), path)
FAILING(int, lstat, (const char* path, struct stat* into), (path, into), path)
FAILING(int, lstat64, (const char* path, struct stat* into), (path, into), path)
FAILING(int, rename, (const char* from, const char* to), (from, to), to)
FAILING(int, link, (const char* from, const char* to), (from, to), to)
FAILING(int, unlink, (const char* path), (path), path)
FAILING(int, unlinkat, (int folder, const char* path, int flags), (folder, path, flags), path)
FAILING(int, remove, (const char* path), (path), path)
FAILING(int, mkdir, (const char* path, unsigned mode), (path, mode), path)
FAILING(int, rmdir, (const char* path), (path), path)
FAILING(int, utimensat, (int folder, const char* path, const timespec* times, int flags), (folder, path, times, flags),
        path)
FAILING(char*, realpath, (const char* path, char* into), (path, into), path)

struct Folder;  // DIR
extern "C" int dirfd(Folder*);
FAILING(Folder*, opendir, (const char* path), (path), path)
FAILING(Folder*, fdopendir, (int fd), (fd), fd)
FAILING(struct dirent*, readdir, (Folder * folder), (folder), dirfd(folder))
FAILING(struct dirent*, readdir64, (Folder * folder), (folder), dirfd(folder))
