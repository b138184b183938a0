// Reads CIFAR-10 and CIFAR-100 (Krizhevsky 2009, "Learning multiple layers of features from tiny
// images"): 32 x 32 colour images in the published binary form, and CIFAR-10 also as an archive of
// JPEGs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

// Returns true for `cifar10` and `cifar100`.
bool IsCifar(absl::string_view name);

// Looks in `dataset_dir`/<name>, then in `dataset_dir`, for
//   cifar10:  data_batch_1.bin .. data_batch_5.bin and test_batch.bin, records of 3,073 bytes
//   cifar100: train.bin and test.bin, records of 3,074 bytes, of whose two labels the fine one is
//             taken
// there, or in the folder that the published archive makes of itself (cifar-10-batches-bin,
// cifar-100-binary), or in the archive (cifar-10-binary.tar.gz, cifar-100-binary.tar.gz). If none
// of these exists, cifar10 is read from cifar10-images.tar or .tar.zst, whose JPEGs are
// train/<class>/<index>.jpg and test/<class>/<index>.jpg: other pixels, so another digest. Samples
// come in the order of the index. Errors as OpenDataset's.
absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar(absl::string_view name, Split split,
                                                   const std::string& dataset_dir);
// Does the part of FindDataset for this kind.
absl::Status FindCifar(absl::string_view name, Split split, const std::string& dataset_dir);

}  // namespace trainyard::data
