// Downloads one file: goes on where it stopped, and keeps nothing whose checksum is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::fetch {

// The exit code of trainyard-fetch where trying again later may help. It is 1 after other errors.
inline constexpr int kExitUnavailable = 75;  // EX_TEMPFAIL of sysexits.h

struct DownloadRequest {
  std::string url;   // http, https or file
  std::string path;  // of the file; its folder exists
  std::string md5;   // 32 lower-case hex digits: what the publisher gives
  // Called as bytes come, with how many are here and how many there will be (0: not known yet).
  std::function<void(int64_t bytes, int64_t total)> on_progress = {};
};

// The MD5 of a file in lower case. Publishers of data sets give it; it protects from damage, and
// not from forgery.
absl::StatusOr<std::string> FileMd5(const std::string& path);

// Returns true where the file was fetched, and false where it was there already with that checksum.
// Bytes are kept in `path`.part until they are all there, so that an interrupted download goes on.
// UNAVAILABLE where the server cannot be reached or goes away five times; NOT_FOUND where it has no
// such file; DATA_LOSS for another checksum, after which nothing is kept.
absl::StatusOr<bool> Download(const DownloadRequest& request);

}  // namespace trainyard::fetch
