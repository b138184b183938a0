// Draws one line that says how far a training is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/output/terminal.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::output {

struct ProgressView {
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t epoch = 0;  // from 0
  int64_t epochs = 0;
  double samples_per_s = 0;
  std::optional<absl::Duration> eta;
  std::optional<double> loss;
  // The accuracy on the test split once that was evaluated, and until then on the batch.
  std::optional<double> accuracy;
  bool is_test_accuracy = false;
};

ProgressView ViewOf(const v1::Progress& progress);

// Returns a line for a terminal, of at most terminal.width columns. The least important parts are
// left out first:
//   epoch 2/3 ▕████████▌       ▏ 412/936  5,412 samples/s  eta 12s  loss 0.431  test accuracy 86.2%
std::string ProgressBarLine(const ProgressView& view, const Terminal& terminal);

// Returns a line for a file:
//   epoch 2/3  step 412/936  44%  5,412 samples/s  eta 12s  loss 0.431  test accuracy 86.2%
std::string ProgressTextLine(const ProgressView& view);

// A file that is being downloaded.
struct TransferView {
  std::string name;
  int64_t bytes = 0;
  int64_t total = 0;  // 0 if unknown
  double bytes_per_s = 0;
};

//   cifar.tar.gz ▕████████▌       ▏ 81 MiB/162 MiB  5.4 MiB/s  eta 15s
std::string TransferBarLine(const TransferView& view, const Terminal& terminal);
//   cifar.tar.gz  81 MiB/162 MiB  50%  5.4 MiB/s  eta 15s
std::string TransferTextLine(const TransferView& view);

}  // namespace trainyard::output
