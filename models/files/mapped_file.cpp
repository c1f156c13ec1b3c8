// Maps files. The handler of SIGBUS maps zeros where a file has ended.
#include "models/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>

#include "hilbert/error.h"

namespace sparsereel::models {

/// The addresses of one mapping, in a list that the signal handler reads. Ranges are reused and never deleted, because
/// the handler may run at any time.
struct GuardedRange {
  std::atomic<uintptr_t> begin = 0, end = 0;  // both 0 if the range is unused
  std::atomic<bool> is_cut = false;
  GuardedRange* next = nullptr;
};

namespace {

// A read is split into pieces. With each piece, the kernel is asked to fetch the piece that lies this far ahead. A file
// that is not in the page cache is then read from the disk with several requests at a time.
constexpr size_t kReadPiece = size_t{1} << 20, kAhead = size_t{32} << 20;

std::mutex ranges_mutex;
std::atomic<GuardedRange*> first_range = nullptr;
uintptr_t page_size = 0;
struct sigaction handler_before = {};

GuardedRange* range_of(uintptr_t address) {
  for (GuardedRange* range = first_range; range != nullptr; range = range->next)
    if (address >= range->begin && address < range->end) return range;
  return nullptr;
}

/// Maps zeros from the faulting page to the end of the mapping: if this page is lost, the following pages usually are
/// too.
bool put_zeros(GuardedRange& range, uintptr_t address) {
  const uintptr_t page = address / page_size * page_size;
  range.is_cut = true;
  return ::mmap(reinterpret_cast<void*>(page), range.end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) return handler_before.sa_sigaction(signal, info, context);
  if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
    return handler_before.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // SIG_DFL: after the return, the same instruction faults again, and that ends the process
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  GuardedRange* range = range_of(address);
  const bool is_handled = range != nullptr && put_zeros(*range, address);
  errno = error;
  if (!is_handled) pass_on(signal, info, context);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &handler_before);
  });
}

GuardedRange* guard(uintptr_t begin, size_t size) {
  install_handler();
  const std::lock_guard lock(ranges_mutex);
  GuardedRange* range = first_range;
  while (range != nullptr && range->end != 0) range = range->next;
  if (range == nullptr) {
    range = new GuardedRange;
    range->next = first_range;
    first_range = range;
  }
  range->is_cut = false;
  range->begin = begin;
  range->end = begin + size;
  return range;
}

void release(GuardedRange& range) {
  const std::lock_guard lock(ranges_mutex);
  range.begin = 0;
  range.end = 0;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const auto fail = [&](int error) {
    ::close(descriptor_);
    return bad_file(path, "cannot be opened: " + std::generic_category().message(error),
                    "check the path and that you may read it");
  };
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a FIFO must not hang
  struct stat status = {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) throw fail(errno);
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(descriptor_);
    throw S_ISREG(status.st_mode) ? bad_file(path, "truncated: the file is empty", "download or export the file again")
                                  : bad_file(path, "is not an ordinary file", "give a file of weights");
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (address == MAP_FAILED) throw fail(errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
  range_ = guard(reinterpret_cast<uintptr_t>(address), size);
}

MappedFile::~MappedFile() {
  release(*range_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  ::close(descriptor_);
}

void MappedFile::read(size_t offset, std::span<std::byte> to, size_t end) const {
  while (!to.empty()) {
    const size_t size = std::min(to.size(), kReadPiece);
    if (offset + kAhead < end)
      ::posix_fadvise(descriptor_, static_cast<off_t>(offset + kAhead), static_cast<off_t>(kReadPiece),
                      POSIX_FADV_WILLNEED);
    const ssize_t got = ::pread(descriptor_, to.data(), size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw_lost();
    offset += static_cast<size_t>(got);
    to = to.subspan(static_cast<size_t>(got));
  }
}

/// Compares sizes too, because no signal reports every loss: if the file was cut within a page, the rest of that page
/// reads as zeros.
void MappedFile::check_whole() const {
  struct stat status = {};
  const bool is_shorter = ::fstat(descriptor_, &status) == 0 && static_cast<uint64_t>(status.st_size) < bytes_.size();
  if (is_shorter || range_->is_cut) throw_lost();
}

void MappedFile::throw_lost() const {
  throw Error(ErrorKind::failed,
              path_.string() + ": became shorter, or could not be read to its end, while it was in use",
              "wait until the file is written or downloaded completely, then run again", {.file = path_.string()});
}

}  // namespace sparsereel::models
