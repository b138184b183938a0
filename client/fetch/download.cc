// A download is kept in `<path>.part`, and gets its name only after its checksum was found right.
#include "client/fetch/download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/backoff.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/curl/caller.h"
#include "common/curl/loopback.h"

namespace trainyard::fetch {
namespace {

constexpr int kTries = 5;
// A try that has brought so much is followed by as many others as the first one.
constexpr int64_t kAdvanceBytes = int64_t{1} << 20;
constexpr absl::Duration kLongestPause = absl::Seconds(30);
constexpr absl::Duration kConnectTimeout = absl::Seconds(30);
// A server that sends less than this for this long has gone away.
constexpr int64_t kMinBytesPerSecond = 100;
constexpr absl::Duration kStallTimeout = absl::Seconds(60);
// No published data set is nearly as large. The limit keeps a server that sends without end from
// filling the disk.
constexpr int64_t kMaxBytes = int64_t{16} << 30;
constexpr int kMaxRedirects = 5;

// Returns a URL for messages: without a password and without a query, which may be one.
std::string ShownUrl(absl::string_view url) {
  const size_t host = url.find("://") == url.npos ? 0 : url.find("://") + 3;
  const absl::string_view authority =
      url.substr(host, std::min(url.find_first_of("/?#", host), url.size()) - host);
  const size_t at = authority.rfind('@');
  const size_t rest = host + (at == authority.npos ? 0 : at + 1);
  const size_t query = std::min(url.find_first_of("?#", rest), url.size());
  return absl::StrCat(url.substr(0, host), url.substr(rest, query - rest),
                      query < url.size() ? "?..." : "");
}

absl::Status FetchError(absl::StatusCode code, const std::string& url, absl::string_view why) {
  return absl::Status(code, absl::StrCat("cannot fetch '", ShownUrl(url), "': ", why));
}

// One file that is being fetched, over several connections.
class PartDownload {
 public:
  PartDownload(const DownloadRequest& request, std::string part)
      : request_(request), part_(std::move(part)) {}

  // Fetches all bytes into the part.
  absl::Status Run() {
    Backoff backoff(request_.first_pause, kLongestPause, *Rng::Real());
    for (int i = 1;; ++i) {
      Outcome outcome;
      const absl::Status status = Continue(outcome);
      if (status.ok() || !outcome.may_heal) return status;
      if (outcome.advance >= kAdvanceBytes) {
        i = 1;
        backoff.Reset();
      }
      if (i >= kTries) return status;
      if (!outcome.restarts) {
        Clock::Real()->SleepFor(std::min(std::max(backoff.Next(), outcome.wanted), kLongestPause));
      }
    }
  }

 private:
  struct Outcome {
    bool may_heal = false;
    bool restarts = false;  // from the first byte
    int64_t advance = 0;
    absl::Duration wanted = absl::ZeroDuration();  // the pause for which the server asks
  };

  // Appends to the part over one connection, from where the part ends.
  absl::Status Continue(Outcome& outcome) {
    TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(part_, O_WRONLY | O_CREAT | O_APPEND));
    TY_ASSIGN_OR_RETURN(size_, FileSize(part_));
    const int64_t asked_from = size_;
    curl::Request asked;
    asked.url = request_.url;
    if (size_ > 0) {
      asked.headers.emplace_back("Range", absl::StrCat("bytes=", size_, "-"));
      // Pieces of two versions of a file must not be put together.
      if (!etag_.empty()) asked.headers.emplace_back("If-Range", etag_);
    }
    asked.connect_timeout = kConnectTimeout;
    asked.stall_timeout = kStallTimeout;
    asked.stall_bytes_per_second = kMinBytesPerSecond;
    asked.redirects_max = kMaxRedirects;
    asked.only_https = request_.is_secure;
    asked.has_proxy = !curl::IsLoopbackUrl(request_.url);
    asked.cuts_body = true;  // nobody reads the page of an error
    bool has_begun = false;
    absl::Status failure;  // of ours, or of an answer that makes no sense
    asked.sink = [&](const curl::Response& response, absl::string_view piece) -> absl::Status {
      if (!std::exchange(has_begun, true)) failure = Begin(response, fd.get());
      if (failure.ok()) failure = Append(piece, fd.get());
      return failure;
    };
    const auto response = caller_.Call(asked);
    outcome.advance = size_ - asked_from;
    TY_RETURN_IF_ERROR(failure);
    if (!response.ok()) {
      outcome.may_heal =
          absl::IsUnavailable(response.status()) || absl::IsDeadlineExceeded(response.status());
      return FetchError(
          outcome.may_heal ? absl::StatusCode::kUnavailable : response.status().code(),
          request_.url, response.status().message());
    }
    if (response->status >= 200 && response->status < 300) {
      // An empty file has no piece.
      if (!has_begun) TY_RETURN_IF_ERROR(Begin(*response, fd.get()));
      return fsync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "cannot sync", part_);
    }
    return Refusal(*response, asked_from, outcome);
  }

  // Looks at an answer before its first byte is kept.
  absl::Status Begin(const curl::Response& response, int fd) {
    const std::string range = curl::HeaderOf(response, "content-range");
    if (response.status == 206 && !absl::StartsWith(range, absl::StrCat("bytes ", size_, "-"))) {
      return FetchError(absl::StatusCode::kFailedPrecondition, request_.url,
                        absl::StrCat("the server sends the range '", range, "'; expected one from ",
                                     size_, " on"));
    }
    if (response.status != 206) {
      if (ftruncate(fd, 0) != 0) return ErrnoStatus(errno, "cannot truncate", part_);
      size_ = 0;
    }
    etag_ = curl::HeaderOf(response, "etag");
    if (absl::StartsWith(etag_, "W/")) etag_.clear();  // it does not tell one byte from another
    int64_t length = 0;
    const bool is_known = absl::SimpleAtoi(curl::HeaderOf(response, "content-length"), &length);
    total_ = is_known ? size_ + length : 0;
    return absl::OkStatus();
  }

  absl::Status Append(absl::string_view piece, int fd) {
    if (size_ + static_cast<int64_t>(piece.size()) > kMaxBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("'", part_, "': over ", kMaxBytes, " bytes are not accepted"));
    }
    TY_RETURN_IF_ERROR(WriteFully(fd, piece, part_));
    size_ += static_cast<int64_t>(piece.size());
    if (request_.on_progress) request_.on_progress(size_, total_);
    return absl::OkStatus();
  }

  absl::Status Refusal(const curl::Response& response, int64_t asked_from, Outcome& outcome) {
    const int status = response.status;
    if (status == 416 && asked_from > 0) {
      // The part has more than there is.
      TY_RETURN_IF_ERROR(RemoveTree(part_));
      outcome.may_heal = outcome.restarts = true;
    }
    if (status == 408 || status == 429 || status >= 500) {
      outcome.may_heal = true;
      int64_t seconds = 0;
      if (absl::SimpleAtoi(curl::HeaderOf(response, "retry-after"), &seconds) && seconds > 0) {
        outcome.wanted = absl::Seconds(seconds);
      }
    }
    const auto code = outcome.may_heal                 ? absl::StatusCode::kUnavailable
                      : status == 404 || status == 410 ? absl::StatusCode::kNotFound
                      : status == 401 || status == 403 ? absl::StatusCode::kPermissionDenied
                                                       : absl::StatusCode::kFailedPrecondition;
    return FetchError(code, request_.url,
                      absl::StrCat("the server answers with HTTP ", status,
                                   code == absl::StatusCode::kPermissionDenied
                                       ? "; it wants a name, or a URL that has not expired"
                                       : ""));
  }

  const DownloadRequest& request_;
  const std::string part_;
  curl::Caller caller_;
  int64_t size_ = 0;   // of the part
  int64_t total_ = 0;  // of the file, or 0 if it is unknown
  std::string etag_;
};

// "file:///a%20b" is the path "/a b".
std::string PathOf(absl::string_view url) {
  absl::ConsumePrefix(&url, "file://");
  absl::ConsumePrefix(&url, "localhost");
  std::string path;
  for (size_t i = 0; i < url.size(); ++i) {
    std::string byte;
    const bool is_escape = url[i] == '%' && i + 2 < url.size() &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(url[i + 1])) &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(url[i + 2]));
    if (is_escape) byte = absl::HexStringToBytes(url.substr(i + 1, 2));
    if (is_escape) i += 2;
    path += is_escape ? byte[0] : url[i];
  }
  return path;
}

absl::Status CopyFromDisk(const DownloadRequest& request, const std::string& part) {
  if (request.is_secure) {
    return FetchError(absl::StatusCode::kInvalidArgument, request.url,
                      "the protocol 'file' is not accepted; expected https");
  }
  constexpr int64_t kBlock = int64_t{1} << 20;
  const std::string path = PathOf(request.url);
  TY_ASSIGN_OR_RETURN(const int64_t total, FileSize(path));
  TY_ASSIGN_OR_RETURN(const UniqueFd to, OpenFile(part, O_WRONLY | O_CREAT | O_TRUNC));
  for (int64_t size = 0;;) {
    TY_ASSIGN_OR_RETURN(const std::string block, ReadFileRange(path, size, kBlock));
    if (block.empty()) break;
    TY_RETURN_IF_ERROR(WriteFully(to.get(), block, part));
    size += static_cast<int64_t>(block.size());
    if (request.on_progress) request.on_progress(size, total);
  }
  return fsync(to.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "cannot sync", part);
}

bool HasMd5(const std::string& path, const std::string& md5) {
  return !md5.empty() && FileExists(path) && FileMd5(path).value_or("") == md5;
}

}  // namespace

absl::StatusOr<std::string> FileMd5(const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) != 1) {
    return absl::FailedPreconditionError(
        "this host's OpenSSL computes no MD5, so the file cannot be verified; fetch it on a host "
        "without FIPS mode, and copy it here");
  }
  constexpr int64_t kBlock = 1 << 20;
  for (int64_t offset = 0;; offset += kBlock) {
    TY_ASSIGN_OR_RETURN(const std::string block, ReadFileRange(path, offset, kBlock));
    TY_CHECK(EVP_DigestUpdate(context.get(), block.data(), block.size()) == 1);
    if (static_cast<int64_t>(block.size()) < kBlock) break;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TY_CHECK(EVP_DigestFinal_ex(context.get(), digest, &size) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), size));
}

absl::StatusOr<bool> Download(const DownloadRequest& request) {
  if (HasMd5(request.path, request.md5)) return false;
  const std::string part = absl::StrCat(request.path, ".part");
  // A download may have ended between its last byte and its renaming.
  if (!HasMd5(part, request.md5)) {
    TY_RETURN_IF_ERROR(absl::StartsWith(request.url, "file://")
                           ? CopyFromDisk(request, part)
                           : PartDownload(request, part).Run());
    const bool is_known = !request.md5.empty();
    TY_ASSIGN_OR_RETURN(const std::string md5, is_known ? FileMd5(part) : std::string());
    if (md5 != request.md5) {
      TY_RETURN_IF_ERROR(RemoveTree(part));
      return error::CorruptFile(
          ShownUrl(request.url),
          absl::StrCat("its MD5 is ", md5, "; expected ", request.md5, "; nothing was kept"));
    }
  }
  if (std::rename(part.c_str(), request.path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", request.path);
  }
  return true;
}

}  // namespace trainyard::fetch
