// Downloads with libcurl. A download is kept in `<path>.part`, and gets its name only after its
// checksum was found right.
#include "client/fetch/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::fetch {
namespace {

constexpr int kTries = 5;
constexpr long kConnectSeconds = 30;
// A server that sends less than this for this long has gone away.
constexpr long kMinBytesPerSecond = 100;
constexpr long kStallSeconds = 60;
// No published data set is nearly as large. The limit keeps a server that sends without end from
// filling the disk.
constexpr curl_off_t kMaxBytes = curl_off_t{16} << 30;
constexpr long kMaxRedirects = 5;

// The argument of curl's writing callback: the file, and the error that ended the writing.
struct Sink {
  int fd;
  std::string path;
  curl_off_t size = 0;
  absl::Status status;
};

size_t Write(char* data, size_t size, size_t count, void* user) {
  auto* sink = static_cast<Sink*>(user);
  const size_t bytes = size * count;
  sink->size += static_cast<curl_off_t>(bytes);
  if (sink->size > kMaxBytes) {
    sink->status = absl::ResourceExhaustedError(
        absl::StrCat("'", sink->path, "': over ", kMaxBytes, " bytes are not accepted"));
  } else {
    sink->status = WriteFully(sink->fd, absl::string_view(data, bytes), sink->path);
  }
  return sink->status.ok() ? bytes : 0;
}

// The argument of curl's progress callback, whose numbers leave out the bytes of earlier
// connections.
struct Meter {
  const std::function<void(int64_t, int64_t)>& tell;
  int64_t before = 0;
};

int Measure(void* user, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
  const auto* meter = static_cast<const Meter*>(user);
  if (meter->tell && now > 0)
    meter->tell(meter->before + now, total > 0 ? meter->before + total : 0);
  return 0;
}

bool MayHeal(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    default:
      return false;
  }
}

absl::Status StatusOf(CURLcode code, long response, const char* message, const std::string& url) {
  const std::string text = absl::StrCat(
      "cannot fetch '", url, "': ", message[0] != '\0' ? message : curl_easy_strerror(code));
  if (response == 404 || code == CURLE_FILE_COULDNT_READ_FILE) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

// Returns true for an http address of this host. Whatever is unusual is not one.
bool IsHttpOfThisHost(absl::string_view url) {
  if (!absl::ConsumePrefix(&url, "http://")) return false;
  const absl::string_view authority = url.substr(0, url.find_first_of("/?#"));
  if (authority.find_first_of("@\\") != authority.npos) return false;
  const absl::string_view host = absl::StartsWith(authority, "[")
                                     ? authority.substr(0, authority.find(']') + 1)
                                     : authority.substr(0, authority.find(':'));
  return host == "localhost" || host == "[::1]" || host == "127.0.0.1";
}

// Appends to the part over one connection, from where the part ends. Sets `restarts` if the server
// cannot continue from there.
absl::Status Continue(const DownloadRequest& request, const std::string& part, bool& heals,
                      bool& restarts) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(part, O_WRONLY | O_CREAT | O_APPEND));
  TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(part));
  Sink sink{.fd = fd.get(), .path = part, .size = size, .status = {}};
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  TY_CHECK(curl != nullptr);
  char message[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, message);
  const bool is_any = !request.is_secure;
  const bool may_http = is_any || IsHttpOfThisHost(request.url);
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR,
                   is_any     ? "http,https,file"
                   : may_http ? "http,https"
                              : "https");
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, is_any ? "http,https" : "https");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, kMinBytesPerSecond);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(size));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Write);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &sink);
  Meter meter{.tell = request.on_progress, .before = size};
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, Measure);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &meter);
  const CURLcode code = curl_easy_perform(curl.get());
  TY_RETURN_IF_ERROR(sink.status);
  long response = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &response);
  constexpr long kRangeNotSatisfiable = 416;  // curl takes it for the end of the file
  if (code == CURLE_OK && response != kRangeNotSatisfiable) {
    if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", part);
    return absl::OkStatus();
  }
  heals = MayHeal(code);
  restarts = size > 0 && (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME ||
                          response == kRangeNotSatisfiable);
  return StatusOf(code, response, message, request.url);
}

// Fetches all bytes into the part, over as many connections as it takes.
absl::Status FetchPart(const DownloadRequest& request, const std::string& part) {
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    bool heals = false;
    bool restarts = false;
    status = Continue(request, part, heals, restarts);
    if (status.ok() || !(heals || restarts)) return status;
    if (restarts) TY_RETURN_IF_ERROR(RemoveTree(part));
  }
  return status;
}

bool HasMd5(const std::string& path, const std::string& md5) {
  return !md5.empty() && FileExists(path) && FileMd5(path).value_or("") == md5;
}

}  // namespace

absl::StatusOr<std::string> FileMd5(const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  TY_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) == 1);
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
    TY_RETURN_IF_ERROR(FetchPart(request, part));
    const bool is_known = !request.md5.empty();
    TY_ASSIGN_OR_RETURN(const std::string md5, is_known ? FileMd5(part) : std::string());
    if (md5 != request.md5) {
      TY_RETURN_IF_ERROR(RemoveTree(part));
      return error::CorruptFile(request.url, absl::StrCat("its MD5 is ", md5, "; expected ",
                                                          request.md5, "; nothing was kept"));
    }
  }
  if (std::rename(part.c_str(), request.path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", request.path);
  }
  return true;
}

}  // namespace trainyard::fetch
