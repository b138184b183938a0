// trainyard-fetch downloads one file and checks it. It is a program of its own because libcurl
// would slow the start of every other command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "client/fetch/download.h"
#include "common/base/env.h"
#include "common/base/run_main.h"
#include "common/base/version.h"

namespace trainyard::fetch {
namespace {

// Nobody can read a line that is redrawn more often.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

int Main(int argc, char** argv) {
  DownloadRequest request;
  CLI::App app{"Downloads one file; prints `fetched`, or `present` if it was there already."};
  app.set_version_flag("--version", std::string("trainyard-fetch ") + Version());
  app.add_option(
         "--url", request.url,
         "http, https or file; - reads it from the standard input, where no other user sees "
         "it")
      ->required();
  app.add_option("--to", request.path, "path of the file")->required();
  app.add_option("--md5", request.md5, "the MD5 that it must have, as 32 hex digits");
  app.add_flag("--secure", request.is_secure, "only https, and http from this host itself");
  bool tells_progress = false;
  app.add_flag("--progress", tells_progress,
               "also print `progress BYTES TOTAL` as bytes come; TOTAL is 0 until it is known");
  CLI11_PARSE(app, argc, argv);
  absl::Duration told = -absl::InfiniteDuration();
  if (tells_progress) {
    request.on_progress = [&told](int64_t bytes, int64_t total) {
      const absl::Duration now = Clock::Real()->Uptime();
      if (now - told < kProgressInterval && bytes != total) return;
      told = now;
      std::printf("progress %lld %lld\n", static_cast<long long>(bytes),
                  static_cast<long long>(total));
      std::fflush(stdout);
    };
  }
  if (request.url == "-") std::getline(std::cin, request.url);
  const absl::StatusOr<bool> fetched = Download(request);
  if (fetched.ok()) {
    std::puts(*fetched ? "fetched" : "present");
    return 0;
  }
  std::fprintf(stderr, "%s\n", std::string(fetched.status().message()).c_str());
  return absl::IsUnavailable(fetched.status()) ? kExitUnavailable : 1;
}

}  // namespace
}  // namespace trainyard::fetch

int main(int argc, char** argv) {
  return trainyard::RunMain("trainyard-fetch", trainyard::fetch::Main, argc, argv);
}
