// Makes the wheel run with older C and C++ libraries. By default, hypot() and std::condition_variable::wait() link to
// their newest versions. RHEL 9 (glibc 2.34, GCC 11) has only older versions, which do the same. With the option --wrap
// in .cmake/install.cmake, the linker passes the calls to the functions here, which call the older versions.
#include <condition_variable>
#include <mutex>

__asm__(".symver older_hypot,hypot@GLIBC_2.2.5");
__asm__(".symver older_wait,_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

// NOLINTBEGIN(bugprone-reserved-identifier): the names that the linker asks for
extern "C" {
double older_hypot(double x, double y);
void older_wait(std::condition_variable* self, std::unique_lock<std::mutex>* lock);

double __wrap_hypot(double x, double y) {
  return older_hypot(x, y);
}

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* self,
                                                                      std::unique_lock<std::mutex>* lock) {
  older_wait(self, lock);
}
}
// NOLINTEND(bugprone-reserved-identifier)
