// A library that fork_server.py preloads into the program. The program then loads its libraries once, and forks a
// process for each run that a test asks for. This saves time, because loading libtorch takes most of a short run. A
// forked process first runs app/before_libraries.cpp, which a program runs before its libraries load, and then main().
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main program = nullptr;
constexpr const char* kSocket = "SPARSEREEL_FORK_SERVER";

/// The working directory, the arguments, and the descriptors that become the standard ones.
struct Request {
  std::string folder;
  std::vector<std::string> arguments;
  std::array<int, 3> descriptors{};
};

/// Waits for the next request. Returns false once the test has closed its end.
bool receive(int socket, Request& request) {
  static std::array<char, 1 << 16> text;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(request.descriptors))> control{};
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (size <= 0 || header == nullptr) return false;
  std::memcpy(request.descriptors.data(), CMSG_DATA(header), sizeof(request.descriptors));
  std::vector<std::string> words;
  for (const char* word = text.data(); word < text.data() + size; word += words.back().size() + 1)
    words.emplace_back(word);
  request.folder = words.front();
  request.arguments.assign(words.begin() + 1, words.end());
  return true;
}

/// Runs the functions in the program's .preinit_array, which otherwise run before those of any library.
void run_before_libraries(int count, char** arguments, char** environment) {
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
  ElfW(Addr) base = 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (size_t i = 0; i < getauxval(AT_PHNUM); ++i)
    if (headers[i].p_type == PT_PHDR) base = reinterpret_cast<ElfW(Addr)>(headers) - headers[i].p_vaddr;
  for (size_t i = 0; i < getauxval(AT_PHNUM); ++i)
    if (headers[i].p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + headers[i].p_vaddr);
  const Main* functions = nullptr;
  size_t size = 0;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_PREINIT_ARRAY) functions = reinterpret_cast<const Main*>(base + dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_PREINIT_ARRAYSZ) size = dynamic->d_un.d_val / sizeof(Main);
  }
  for (size_t i = 0; i < size; ++i) functions[i](count, arguments, environment);
}

int run(Request& request) {
  for (int i = 0; i < 3; ++i) dup2(request.descriptors[i], i);
  for (const int descriptor : request.descriptors) close(descriptor);
  if (chdir(request.folder.c_str()) != 0) _exit(127);
  std::vector<char*> arguments;
  for (std::string& argument : request.arguments) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const auto count = static_cast<int>(request.arguments.size());
  run_before_libraries(count, arguments.data(), environ);
  return program(count, arguments.data(), environ);
}

/// Replaces the program's main(). Forks a process for each request. The first answer is the forked process's id. The
/// second answer, once this process has ended, is its wait status.
int serve(int, char**, char**) {
  const int socket = std::atoi(std::getenv(kSocket));
  unsetenv(kSocket);
  unsetenv("LD_PRELOAD");
  for (Request request; receive(socket, request);) {
    const pid_t child = fork();
    if (child == 0) {
      close(socket);
      return run(request);
    }
    for (const int descriptor : request.descriptors) close(descriptor);
    std::int32_t answer = child;
    send(socket, &answer, sizeof(answer), MSG_NOSIGNAL);
    waitpid(child, &answer, 0);
    send(socket, &answer, sizeof(answer), MSG_NOSIGNAL);
  }
  _exit(0);
}

}  // namespace

extern "C" int __libc_start_main(Main main, int count, char** arguments, void (*init)(), void (*fini)(), void (*end)(),
                                 void* stack) {  // NOLINT
  program = main;
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(std::getenv(kSocket) == nullptr ? main : serve, count, arguments, init, fini, end, stack);
}
