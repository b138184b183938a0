// Measures what it takes to make the archive of a folder for the first time, and to find it again
// while nothing has changed, with a repository and without one.
//
//   bench_code [--files 5000] [--runs 5]
// Prints a line for each case: the least and the middle of the milliseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/code/archive_cache.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

constexpr int kFilesOfFolder = 25;

void WriteFiles(const std::string& folder, int files) {
  for (int i = 0; i < files; ++i) {
    const std::string below = absl::StrCat(folder, "/part", i / kFilesOfFolder);
    if (i % kFilesOfFolder == 0) std::filesystem::create_directories(below);
    std::string text;
    for (int line = 0; line < 100; ++line) absl::StrAppend(&text, "value_", i, " = ", line, "\n");
    TY_CHECK_OK(ReplaceFile(absl::StrCat(below, "/file", i, ".py"), text));
  }
  TY_CHECK_OK(ReplaceFile(absl::StrCat(folder, "/.gitignore"), "*.pyc\n__pycache__/\n*.ckpt\n"));
}

double Milliseconds(code::ArchiveCache& cache, const std::string& folder, bool is_from_cache) {
  const auto start = std::chrono::steady_clock::now();
  const auto made = cache.Make(folder);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  TY_CHECK_OK(made.status());
  TY_CHECK(made->is_from_cache == is_from_cache);
  return took.count();
}

void Print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("%-32s %8.1f %8.1f\n", what, times.front(), times[times.size() / 2]);
}

void Measure(const std::string& kind, const testing::TempDir& dir, int runs) {
  // Files that were just written are read again, for their times do not tell enough.
  testing::ManualClock clock;
  clock.Advance(absl::Hours(24 * 365 * 100));
  std::vector<double> first;
  std::vector<double> unchanged;
  for (int i = 0; i < runs; ++i) {
    code::ArchiveCache cache(dir.File(absl::StrCat("cache", i)), clock);
    first.push_back(Milliseconds(cache, dir.File("project"), false));
    unchanged.push_back(Milliseconds(cache, dir.File("project"), true));
    TY_CHECK_OK(RemoveTree(dir.File(absl::StrCat("cache", i))));
  }
  Print(absl::StrCat("first archive, ", kind).c_str(), first);
  Print(absl::StrCat("unchanged, ", kind).c_str(), unchanged);
}

int Main(int argc, char** argv) {
  int files = 5000;
  int runs = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--files") (void)absl::SimpleAtoi(argv[i + 1], &files);
    if (std::string(argv[i]) == "--runs") (void)absl::SimpleAtoi(argv[i + 1], &runs);
  }
  const testing::TempDir dir;
  WriteFiles(dir.File("project"), files);
  std::printf("%d files\n%-32s %8s %8s\n", files, "", "least ms", "middle");
  Measure("no repository", dir, runs);
  const std::string commit = absl::StrCat(
      "cd ", dir.File("project"),
      " && git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm all");
  testing::Process::Options options;
  options.args = {"/bin/sh", "-c", commit};
  const auto committed = testing::RunProcess(options, dir.path(), absl::Minutes(1));
  TY_CHECK(committed.ok() && committed->exit_code == 0);
  Measure("a repository", dir, runs);
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
