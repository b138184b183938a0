// Makes the report that --verify prints, which says if a checkpoint is what it claims to be.
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
  bool is_right = true;  // false if anything that was compared differs
};

// Compares the hash of every file with MANIFEST, then makes the evaluation that state.json records
// once more (backend, ranks and threads as recorded) and compares it bit for bit. If the data set
// or the backend is not here, it compares the files only, and says so. Returns NOT_FOUND if there
// is no folder, and DATA_LOSS if MANIFEST is missing or damaged.
absl::StatusOr<VerifyReport> Verify(const VerifyOptions& options, Clock& clock);

}  // namespace trainyard::trainer
