// Finds out what a program runs in: its Python with the packages, the image of its container, the
// driver and the system. It looks at the running program, so whatever prepared its environment has
// done so by then, and the program does not wait for anything.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/program/image_probe.h"
#include "worker/program/question.h"

namespace trainyard::program {

// The fields of v1.ProgramEnvironment.
struct FoundEnvironment {
  std::string interpreter;
  std::string packages;
  std::string image_digest;
  std::string driver;
  std::string system;
};

// The packages that are kept. The rest of them is left out, in whole lines.
inline constexpr size_t kPackagesBytesMax = size_t{64} << 10;

// Returns the message as JSON, as RANK_STREAM_ENVIRONMENT has it. Bytes that are no text are
// replaced.
std::string EnvironmentJson(const FoundEnvironment& found);
// Reads the output of the question to Python: its version, then a package in each line. Notes
// nothing if it is something else.
void TakeAnswer(absl::string_view python, absl::string_view answer, FoundEnvironment& found);
// Returns PRETTY_NAME of an os-release file, or an empty text.
std::string SystemName(absl::string_view os_release);

// Asks each question in a process of its own with a time limit, and writes the file once. It is not
// thread-safe, and borrows `clock`.
class EnvironmentProbe {
 public:
  // Without a question, the program runs in no container.
  EnvironmentProbe(std::string path, Clock& clock, ImageQuestion image = {});

  // Takes the next step; it never blocks. Call it now and then while the program runs.
  void Look(pid_t program);
  // The program has ended: takes what comes within a second, and writes the file.
  void Finish();

 private:
  void LookForPython(pid_t program);
  // Looks for Python among the processes of the program.
  void Search(pid_t program);
  void Write();

  const std::string path_;
  Clock& clock_;
  const absl::Duration start_;
  bool is_done_ = false;
  bool is_python_done_ = false;
  std::string python_;  // that was asked
  absl::Duration asked_at_;
  Question question_;
  ImageProbe image_;
  FoundEnvironment found_;
};

}  // namespace trainyard::program
