// The processes of a job that mpirun, prterun or srun has started, as PMIx knows them: their ranks,
// bytes that each leaves for the others, and meetings of all. Takes the place of links.hpp
// with --pmix. Built where PMIx was found; elsewhere joining fails. Single-threaded.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace wordcount {

class Launcher {
 public:
  // Joins the job that started this process; fails where none did.
  Launcher();
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  [[nodiscard]] unsigned rank() const;
  [[nodiscard]] unsigned size() const;

  // For the others to take once all have met.
  void leave(const std::string& key, std::string_view bytes);
  std::string take(unsigned rank, const std::string& key);
  // Returns when all have called it as often as this process. A process that does not come ends the
  // run by its deadline, one that dies by the launcher, which ends the others.
  void meet();

 private:
  struct Job;
  std::unique_ptr<Job> job_;
};

}  // namespace wordcount
