// Sees every rank that starts. The witness stands before the trainer: it takes a lock that the
// kernel keeps until the rank is gone, writes down that the rank has started, and becomes the
// trainer. So two ranks that live at the same time are found without any clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

class Witness {
 public:
  // `prelude` is a text of the shell that runs before the trainer, in which $job and $attempt are
  // numbers.
  explicit Witness(const std::string& prelude = "");

  // The program for the worker's flag --trainer.
  const std::string& trainer() const { return trainer_; }
  // "JOB ATTEMPT RANK" of each start, in their order.
  std::vector<std::string> Starts() const;
  // The ranks of which an attempt has started more than one process.
  int64_t StartedTwice() const;
  // The starts while another process of the same job and rank was alive.
  int64_t Overlaps() const;

 private:
  std::vector<std::string> Lines(const std::string& name) const;

  TempDir folder_;
  std::string trainer_;
};

}  // namespace trainyard::testing
