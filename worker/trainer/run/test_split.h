// The test split, loaded behind the training.
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

// One thread uses it.
class TestSplit {
 public:
  TestSplit(std::string dataset, data::DatasetOptions options)
      : dataset_(std::move(dataset)), options_(std::move(options)) {}

  // Begins to load once, and tells an error as soon as it is known. Never waits.
  absl::Status Poll();
  // Waits for the data, which it loads where nobody has begun to.
  absl::StatusOr<const data::Dataset*> Get();

 private:
  const std::string dataset_;
  const data::DatasetOptions options_;
  std::future<absl::StatusOr<std::unique_ptr<data::Dataset>>> loading_;
  std::unique_ptr<data::Dataset> loaded_;
};

}  // namespace trainyard::trainer
