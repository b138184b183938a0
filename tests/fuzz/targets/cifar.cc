// Opens CIFAR in all forms in which it is published.
#include "worker/data/cifar.h"

#include <array>

#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tar_headers.h"
#include "tests/fuzz/target.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::fuzz::cifar {
namespace {

struct Form {
  const char* dataset;
  const char* file;
  bool is_tar;
};
constexpr std::array<Form, 5> kForms = {{{"cifar10", "test_batch.bin", false},
                                         {"cifar100", "test.bin", false},
                                         {"cifar10", "cifar10-images.tar", true},
                                         {"cifar10", "cifar10-images.tar.zst", false},
                                         {"cifar10", "cifar-10-binary.tar.gz", false}}};

void Run(absl::string_view bytes) {
  Input input(bytes);
  const size_t number = input.Below(kForms.size());
  const Form& form = kForms[number];
  static testing::TempDir dir;
  const std::string folder = dir.File(std::to_string(number));
  static const bool made = [] {
    for (size_t i = 0; i < kForms.size(); ++i) {
      TY_CHECK_OK(MakeDirectories(dir.File(std::to_string(i))));
    }
    return true;
  }();
  TY_CHECK(made);
  const absl::string_view rest = input.Rest();
  SetFile(JoinPath(folder, form.file), form.is_tar ? WithChecksums(rest) : std::string(rest));
  const auto dataset = data::OpenCifar(form.dataset, data::Split::kTest, folder);
  if (!dataset.ok()) return;
  std::vector<float> values(3072);
  std::vector<int32_t> labels(1);
  for (int64_t i = 0; i < (*dataset)->size(); ++i) {
    TY_CHECK_OK((*dataset)->Read(i, absl::MakeSpan(values), absl::MakeSpan(labels)));
    TY_CHECK(labels[0] >= 0 && labels[0] < (*dataset)->classes());
  }
}

// Zstandard has a window of 2 MiB for streams whose size is unknown.
const Registration kTarget({.name = "cifar", .run = Run, .fixed_bytes = int64_t{4} << 20});

}  // namespace
}  // namespace trainyard::fuzz::cifar
