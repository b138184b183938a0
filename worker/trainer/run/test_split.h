// Loads the test split behind the training.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_options.h"

namespace trainyard::trainer {

// Only one thread may use it.
class TestSplit {
 public:
  TestSplit(std::string dataset, data::DatasetOptions options)
      : dataset_(std::move(dataset)), options_(std::move(options)) {}

  // Begins to load at the first call, and reports an error as soon as it is known. It never waits.
  absl::Status Poll();
  // Waits for the data, and loads it if that has not begun.
  absl::StatusOr<const data::Dataset*> Get();

 private:
  const std::string dataset_;
  const data::DatasetOptions options_;
  std::future<absl::StatusOr<std::unique_ptr<data::Dataset>>> loading_;
  std::unique_ptr<data::Dataset> loaded_;
};

}  // namespace trainyard::trainer
