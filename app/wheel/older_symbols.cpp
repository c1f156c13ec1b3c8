// Makes the wheel run with older C and C++ libraries. The compiler chose the newest versions of these two functions.
// Each has an older version that does the same, which RHEL 9 (glibc 2.34, GCC 11) has too. The linker passes the calls
// to the functions here (option --wrap in .cmake/install.cmake).
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
