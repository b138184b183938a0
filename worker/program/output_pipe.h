// Takes what a program prints into the log of its rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::program {

// A pipe that is the program's output, and a thread that copies it to a file.
//
// The program must not have the file itself: `echo x > /dev/stderr` opens its output anew and
// empties it, and a full disk would be an error of whoever prints.
class OutputPipe {
 public:
  // Copies to `log`, which stays open and takes each block at its end. It gets at most
  // `bytes_max`; of what follows only the last lines are written, at the end, so that the program
  // goes on and fills no disk.
  static absl::StatusOr<std::unique_ptr<OutputPipe>> Start(int log, int64_t bytes_max);
  ~OutputPipe();

  // The end for the program.
  int fd() const { return write_.get(); }
  // Copies what the program has printed until now, and ends. What other processes print later is
  // lost. Returns the number of bytes that could not be written.
  int64_t Finish();

 private:
  OutputPipe(UniqueFd read, UniqueFd write, UniqueFd end, int log, int64_t bytes_max)
      : read_(std::move(read)),
        write_(std::move(write)),
        end_(std::move(end)),
        log_(log),
        room_(bytes_max) {}
  void Copy();
  // Copies one block. Returns false if there is none.
  bool CopyBlock();

  const UniqueFd read_;
  UniqueFd write_;
  const UniqueFd end_;  // can be read once the thread is to end
  const int log_;
  int64_t room_;      // what the log may still get
  std::string last_;  // the end of what it did not get
  int64_t lost_ = 0;
  std::thread thread_;
};

}  // namespace trainyard::program
