// Takes some samples of a data set in place of all.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

// Returns a data set of `samples` of those of `whole`, drawn without replacement by the seed, in
// the order that they have there. It is a function of the size, the number and the seed, and a
// smaller number takes some of the samples of a larger one. The digest is still that of the whole,
// since it identifies bytes on disk. Returns INVALID_ARGUMENT if there are not so many samples.
absl::StatusOr<std::unique_ptr<Dataset>> TakeSubset(std::unique_ptr<Dataset> whole, int64_t samples,
                                                    uint64_t seed);

}  // namespace trainyard::data
