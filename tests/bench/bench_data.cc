// Measures how long it takes to turn a JPEG file into a normalised row, in images per second of
// processor time. libjpeg-turbo decodes the same files in the same run, in turns, for comparison.
// docs/performance.md has the figures, and `--help` lists the flags.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>
// jpeglib.h needs <cstdio>.
#include <jpeglib.h>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/run_main.h"
#include "common/base/status_macros.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/jpeg_files.h"
#include "tests/unit/worker/data/tar_files.h"
#include "worker/data/open_dataset.h"
#include "worker/data/prefetch.h"

namespace trainyard::data {
namespace {

struct Arguments {
  std::string images;
  int64_t side = 224;
  int threads = 1;
  int rounds = 3;
};

// A round has this many epochs. Starting the threads and touching the ring's memory for the first
// time costs once a job, not once an epoch.
constexpr int64_t kEpochs = 10;

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Adds some detail, as photographs have: slopes under a grid and a little noise.
std::vector<std::string> GenerateImages() {
  constexpr int kImages = 24;
  std::vector<std::string> images;
  images.reserve(kImages);
  for (int i = 0; i < kImages; ++i) {
    images.push_back(
        JpegBytes(500, 375,
                  [i](int x, int y, int c) {
                    const int noise = (x * 7919 + y * 104729 + c * 31 + i * 17) % 37;
                    return (x / 2 + y / 4 + 40 * ((x / (20 + i) + y / 30) % 2) + noise) % 256;
                  },
                  {.quality = 90}));
  }
  return images;
}

absl::StatusOr<std::vector<std::string>> ReadImages(const std::string& folder) {
  if (folder.empty()) return GenerateImages();
  std::vector<std::string> images;
  TY_ASSIGN_OR_RETURN(const auto names, ListDirectory(folder));
  for (const std::string& name : names) {
    if (!absl::EndsWithIgnoreCase(name, ".jpg") && !absl::EndsWithIgnoreCase(name, ".jpeg")) {
      continue;
    }
    TY_ASSIGN_OR_RETURN(std::string bytes, ReadFile(JoinPath(folder, name)));
    images.push_back(std::move(bytes));
  }
  if (images.empty()) return absl::NotFoundError(absl::StrCat("no JPEG in '", folder, "'"));
  return images;
}

// Does what libjpeg-turbo does by itself: decodes all pixels as RGB, into memory that is reused.
void DecodeWhole(const std::string& bytes, std::vector<uint8_t>& pixels) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // ends the process at an error
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t row_bytes = size_t{info.output_width} * 3;
  pixels.resize(row_bytes * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[] = {pixels.data() + info.output_scanline * row_bytes};
    jpeg_read_scanlines(&info, rows, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

double DecodeAll(const std::vector<std::string>& images) {
  std::vector<uint8_t> pixels;
  const double start = ProcessorSeconds();
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (const std::string& image : images) DecodeWhole(image, pixels);
  }
  return ProcessorSeconds() - start;
}

// Prepares all epochs in batches of 16, from the shard to normalised rows. Returns the seconds of
// processor time.
double PrepareAll(const Dataset& dataset, const Augmentation& augmentation, int threads) {
  const Preparation preparation{
      .normalization = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}},
      .augmentation = augmentation,
      .seed = 1,
      .threads = threads};
  const double start = ProcessorSeconds();
  constexpr int64_t kBatch = 16;
  const int64_t batches = (dataset.size() + kBatch - 1) / kBatch;
  const auto plan = [&](int64_t sequence) {
    std::vector<int64_t> rows;
    const int64_t begin = sequence % batches * kBatch;
    const int64_t end = sequence < kEpochs * batches ? std::min(dataset.size(), begin + kBatch) : 0;
    for (int64_t row = begin; row < end; ++row) rows.push_back(row);
    return PlannedBatch(std::move(rows), sequence / batches);
  };
  Prefetcher prefetcher(dataset, preparation, plan, 3);
  while (prefetcher.Next() != nullptr) {
  }
  TY_CHECK_OK(prefetcher.status());
  return ProcessorSeconds() - start;
}

absl::Status Run(const Arguments& arguments) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> images, ReadImages(arguments.images));
  const testing::TempDir folder;
  TY_RETURN_IF_ERROR(MakeDirectories(folder.File("bench/train")));
  std::vector<TarFile> files;
  for (size_t i = 0; i < images.size(); ++i) {
    files.push_back({absl::StrCat("photo/", i, ".jpg"), images[i]});
  }
  folder.Write("bench/train/0.tar", TarBytes(files));
  DatasetOptions options;
  options.dataset_dir = folder.path();
  options.path = "bench";
  options.image_size = arguments.side;
  TY_ASSIGN_OR_RETURN(const auto dataset, OpenDataset("images", Split::kTrain, options));

  struct Case {
    const char* name;
    Augmentation augmentation;
    double seconds = 0;
  };
  std::vector<Case> cases = {
      {"random_resized_crop, flip", {.min_area = 0.08, .max_area = 1, .flip = true}},
      {"the same, color",
       {.min_area = 0.08,
        .max_area = 1,
        .flip = true,
        .brightness = 0.4,
        .contrast = 0.4,
        .saturation = 0.4}},
      {"resize, centre crop", {}}};
  double whole_seconds = 0;
  for (int round = 0; round < arguments.rounds; ++round) {
    whole_seconds += DecodeAll(images);
    for (Case& item : cases) {
      item.seconds += PrepareAll(*dataset, item.augmentation, arguments.threads);
    }
  }
  const double count =
      static_cast<double>(images.size()) * static_cast<double>(kEpochs * arguments.rounds);
  std::printf("%zu images, samples of %lld pixels, %d threads; images/s of processor time\n",
              images.size(), static_cast<long long>(arguments.side), arguments.threads);
  std::printf("%-32s %10.1f %8s\n", "libjpeg-turbo, whole", count / whole_seconds, "100 %");
  for (const Case& item : cases) {
    std::printf("%-32s %10.1f %6.0f %%\n", item.name, count / item.seconds,
                100 * whole_seconds / item.seconds);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Compares the way from JPEG files to normalised rows with decoding alone.");
  app.add_option("--images", arguments.images, "folder of JPEGs; generated ones where left out");
  app.add_option("--side", arguments.side, "of a sample, in pixels")->check(CLI::Range(8, 1024));
  app.add_option("--threads", arguments.threads, "that decode")->check(CLI::Range(1, 256));
  app.add_option("--rounds", arguments.rounds, "of ten times all images")
      ->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_data: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace trainyard::data

int main(int argc, char** argv) {
  return trainyard::RunMain("bench_data", trainyard::data::Main, argc, argv);
}
