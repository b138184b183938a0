// Whether a checkpoint is what it says: what --verify prints.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace trainyard::trainer {

enum class VerifyFormat { kText, kJson };

struct VerifyOptions {
  std::string checkpoint_dir;
  std::string dataset_dir;
  VerifyFormat format = VerifyFormat::kText;
};

struct VerifyReport {
  std::string text;
  bool is_right = true;  // nothing that was compared differs
};

// Compares the hash of every file with MANIFEST, then makes the evaluation that state.json records
// once more (backend, ranks and threads as recorded) and compares it bit for bit. Where the data
// set or the backend is not here, the files alone, which the report says. NOT_FOUND for no folder;
// DATA_LOSS where MANIFEST is missing or damaged.
absl::StatusOr<VerifyReport> Verify(const VerifyOptions& options, Clock& clock);

}  // namespace trainyard::trainer
