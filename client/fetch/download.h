// Downloads one file. An interrupted download is resumed, and a file with a wrong checksum is not
// kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainyard::fetch {

// The exit code of trainyard-fetch if trying again later may help. It is 1 after other errors.
inline constexpr int kExitUnavailable = 75;  // EX_TEMPFAIL of sysexits.h

struct DownloadRequest {
  std::string url;   // http, https or file
  std::string path;  // of the file, whose folder exists
  // 32 lower-case hex digits, as the publisher gives them; empty for a file that says itself if it
  // is whole, and that is fetched anew each time.
  std::string md5 = {};
  // Only https, and http from this host itself. It never leads to another kind of address.
  bool is_secure = false;
  // Called as bytes come, with the number that is here and the total, which is 0 as long as it is
  // unknown.
  std::function<void(int64_t bytes, int64_t total)> on_progress = {};
  // The pause before the second try; later ones are longer.
  absl::Duration first_pause = absl::Milliseconds(500);
};

// Returns the MD5 of a file in lower case. Publishers of data sets give it. It protects against
// damage, but not against forgery.
absl::StatusOr<std::string> FileMd5(const std::string& path);

// Returns true if the file was fetched, and false if it was there already with that checksum. Bytes
// are kept in `path`.part until all are there, so that an interrupted download can be resumed.
// Returns UNAVAILABLE if the server cannot be reached, fails or goes away five times in a row,
// NOT_FOUND if it has no such file, PERMISSION_DENIED if it does not give it out, and DATA_LOSS if
// the checksum is wrong, after which nothing is kept. Messages have no query of the URL, which may
// hold a secret.
absl::StatusOr<bool> Download(const DownloadRequest& request);

}  // namespace trainyard::fetch
