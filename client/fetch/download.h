// Downloads one file: goes on where it stopped, and keeps nothing whose checksum is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::fetch {

// What trainyard-fetch ends with where trying again later may help; 1 after other errors.
inline constexpr int kExitUnavailable = 75;  // EX_TEMPFAIL of sysexits.h

struct DownloadRequest {
  std::string url;   // http, https or file
  std::string path;  // of the file; its folder exists
  std::string md5;   // 32 lower-case hex digits: what the publisher gives
  // Called as bytes come, with how many are here and how many there will be (0: not known yet).
  std::function<void(int64_t bytes, int64_t total)> on_progress = {};
};

// The lower-case MD5 of a file: what publishers of data sets give, against damage and not against
// forgery.
absl::StatusOr<std::string> FileMd5(const std::string& path);

// Whether the file was fetched; false where a file with that checksum was there already. Bytes are
// kept in `path`.part until they are all there, so that an interrupted download goes on.
// UNAVAILABLE where the server cannot be reached or goes away five times; NOT_FOUND where it has no
// such file; DATA_LOSS for another checksum, after which nothing is kept.
absl::StatusOr<bool> Download(const DownloadRequest& request);

}  // namespace trainyard::fetch
