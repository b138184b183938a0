// Builds requests, signs them, and tries again.
#include "common/s3/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/backoff.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/curl/loopback.h"
#include "common/s3/errors.h"

namespace trainyard::s3 {
namespace {

// A page of a list has at most 1,000 keys of 1,024 bytes, each of which XML may make six times as
// long. Other answers are much shorter.
constexpr int64_t kAnswerBytesMax = int64_t{8} << 20;
constexpr int64_t kObjectBytesMax = int64_t{5} << 40;  // S3's own limit
// Reading a large object outlives any number of breaks, as long as each try brings so much. A store
// that gives less is given up after all tries.
constexpr int64_t kAdvanceBytes = int64_t{64} << 10;
// An abort after Cancel must not delay the end of a program.
constexpr absl::Duration kLastWordTimeout = absl::Seconds(5);

bool IsBucketName(absl::string_view name) {
  // Old buckets of AWS may have capitals and underscores. The limits keep the name from changing
  // the meaning of the URL that it becomes a part of.
  return name.size() >= 3 && name.size() <= 255 && name.front() != '.' &&
         !absl::StrContains(name, "..") && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
                  c == '_';
         });
}

absl::Status CheckKey(const std::string& key) {
  if (!key.empty() && key.size() <= kKeyBytesMax && IsUtf8(key) && key.front() != '/') {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", PlainText(key, 100), "' is no key of an object; expected 1 to ",
                   kKeyBytesMax, " bytes of UTF-8 that do not begin with a slash"));
}

int64_t LengthOf(const curl::Response& response) {
  int64_t length = -1;
  return absl::SimpleAtoi(curl::HeaderOf(response, "content-length"), &length) ? length : -1;
}

bool IsWorthAnotherTry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

struct Client::Plan {
  std::string verb;  // for messages
  std::string method;
  std::string key = {};
  Query query = {};
  std::map<std::string, std::string> headers = {};
  absl::string_view body = {};
  int64_t bytes = 0;  // that the call moves at most, to say how long it may take
  bool is_last_word = false;
  std::function<absl::Status(const curl::Response&, absl::string_view)> sink = {};
  // Changes the status of an answer that says in its body how it is meant.
  std::function<void(curl::Response&)> judge = {};
  // Changes the plan before another try. Returns true if nothing is left to do.
  std::function<bool(Plan&)> before_retry = {};
  // The last try has brought enough that the next one counts as the first.
  bool has_advanced = false;
};

absl::StatusOr<Location> ParseLocation(absl::string_view text) {
  absl::string_view rest = text;
  const bool is_s3 = absl::ConsumePrefix(&rest, "s3://");
  const size_t slash = std::min(rest.find('/'), rest.size());
  Location location{
      std::string(rest.substr(0, slash)),
      std::string(absl::StripSuffix(rest.substr(std::min(slash + 1, rest.size())), "/"))};
  // Enough room is left for the names below the prefix.
  const bool is_prefix = location.prefix.size() <= kKeyBytesMax / 2 && IsUtf8(location.prefix) &&
                         !absl::StartsWith(location.prefix, "/");
  if (!is_s3 || !IsBucketName(location.bucket) || !is_prefix) {
    return absl::InvalidArgumentError(absl::StrCat("'", PlainText(std::string(text), 100),
                                                   "' is no place in a bucket; expected "
                                                   "s3://BUCKET or s3://BUCKET/FOLDER"));
  }
  if (!location.prefix.empty()) location.prefix += '/';
  return location;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options, Clock& clock,
                                                       Rng& rng) {
  if (!IsBucketName(options.bucket)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", PlainText(options.bucket, 100), "' is no name of a bucket"));
  }
  const bool has_bucket_in_path = options.has_bucket_in_path.value_or(!options.endpoint.empty());
  options.has_bucket_in_path = has_bucket_in_path;
  if (options.endpoint.empty()) {
    options.endpoint = absl::StrCat("https://s3.", options.region, ".amazonaws.com");
  }
  options.endpoint = std::string(absl::StripSuffix(options.endpoint, "/"));
  absl::string_view host = options.endpoint;
  const bool is_https = absl::ConsumePrefix(&host, "https://");
  const bool is_http = !is_https && absl::ConsumePrefix(&host, "http://");
  if (!(is_https || is_http) || host.empty() || host.find_first_of("/?#@\\ ") != host.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", PlainText(options.endpoint, 200),
                     "' is no endpoint; expected https://HOST or https://HOST:PORT"));
  }
  TY_CHECK(options.tries > 0);
  const std::string bucket = options.bucket;
  std::unique_ptr<Client> client(new Client(std::move(options), clock, rng));
  client->scheme_ = is_https ? "https://" : "http://";
  host = client->options_.endpoint;
  absl::ConsumePrefix(&host, client->scheme_);
  client->is_loopback_ = curl::IsLoopbackUrl(client->options_.endpoint);
  client->host_ = has_bucket_in_path ? std::string(host) : absl::StrCat(bucket, ".", host);
  return client;
}

absl::StatusOr<Credentials> Client::FindCredentials() const {
  if (options_.find_credentials) return options_.find_credentials();
  return options_.credentials;
}

absl::StatusOr<curl::Response> Client::Try(const Plan& plan, std::string& date) {
  TY_ASSIGN_OR_RETURN(const Credentials credentials, FindCredentials());
  const absl::Time now = clock_.Now();
  date = AmzDate(now);
  UnsignedRequest unsigned_request{plan.method,
                                   *options_.has_bucket_in_path
                                       ? absl::StrCat("/", options_.bucket, PathOf(plan.key))
                                       : PathOf(plan.key),
                                   plan.query, plan.headers, HexSha256(plan.body)};
  auto& headers = unsigned_request.headers;
  headers["host"] = host_;
  headers["x-amz-date"] = date;
  headers["x-amz-content-sha256"] = unsigned_request.body_sha256;
  if (!credentials.session_token.empty()) {
    headers["x-amz-security-token"] = credentials.session_token;
  }
  const std::string authorization =
      AuthorizationOf(unsigned_request, credentials, {options_.region}, now);
  curl::Request request;
  request.method = plan.method;
  const std::string query = QueryText(plan.query);
  request.url =
      absl::StrCat(scheme_, host_, unsigned_request.path, query.empty() ? "" : "?", query);
  request.headers.assign(headers.begin(), headers.end());
  request.headers.emplace_back("authorization", authorization);
  if (plan.method == "PUT" || plan.method == "POST") {
    request.headers.emplace_back("content-type", "application/octet-stream");
  }
  request.body = plan.body;
  request.connect_timeout = options_.connect_timeout;
  request.stall_timeout = options_.stall_timeout;
  request.timeout = plan.is_last_word ? kLastWordTimeout : TimeFor(plan.bytes);
  request.body_bytes_max = kAnswerBytesMax;
  request.sink = plan.sink;
  request.has_proxy = !is_loopback_;
  request.authorities_file = options_.authorities_file;
  request.is_stopping = plan.is_last_word ? nullptr : &is_cancelled_;
  return caller_.Call(request);
}

absl::Duration Client::TimeFor(int64_t bytes) const {
  return options_.call_timeout +
         absl::Seconds(static_cast<double>(bytes) /
                       static_cast<double>(options_.slowest_bytes_per_second));
}

absl::StatusOr<curl::Response> Client::Run(Plan& plan) {
  Backoff backoff(options_.first_pause, options_.longest_pause, rng_);
  Subject subject{plan.verb, options_.bucket, plan.key, options_.endpoint, options_.region, ""};
  absl::Status failure;
  for (int i = 1;; ++i) {
    auto response = Try(plan, subject.date);
    if (response.ok() && plan.judge) plan.judge(*response);
    absl::Duration pause = backoff.Next();
    if (!response.ok()) {
      // There is no call without keys, and the message says already what to do.
      if (absl::IsCancelled(response.status()) || absl::IsUnauthenticated(response.status())) {
        return response.status();
      }
      failure = StatusOfCall(subject, response.status());
      if (!IsWorthAnotherTry(response.status())) return failure;
    } else {
      if (response->status >= 200 && response->status < 300) return response;
      failure = StatusOfAnswer(subject, *response);
      if (!MayPass(*response)) return failure;
      int64_t seconds = 0;
      if (absl::SimpleAtoi(curl::HeaderOf(*response, "retry-after"), &seconds) && seconds > 0) {
        pause = std::max(pause, std::min(absl::Seconds(seconds), options_.longest_pause));
      }
    }
    if (plan.before_retry && plan.before_retry(plan)) return curl::Response{};
    if (std::exchange(plan.has_advanced, false)) {
      i = 1;
      backoff.Reset();
      pause = backoff.Next();
    }
    if (i >= options_.tries || plan.is_last_word) return failure;
    if (!Pause(pause)) return absl::CancelledError("the call was cancelled");
  }
}

bool Client::Pause(absl::Duration duration) {
  const absl::Duration deadline = clock_.Uptime() + duration;
  const MutexLock lock(&mutex_);
  while (!is_cancelled_) {
    const absl::Duration left = deadline - clock_.Uptime();
    if (left <= absl::ZeroDuration()) return true;
    cancelled_.WaitWithTimeout(&mutex_, left);
  }
  return false;
}

void Client::Cancel() {
  const MutexLock lock(&mutex_);
  is_cancelled_ = true;
  cancelled_.SignalAll();
}

absl::StatusOr<std::string> Client::Put(const std::string& key, absl::string_view body,
                                        const PutCondition& condition) {
  TY_RETURN_IF_ERROR(CheckKey(key));
  TY_CHECK(static_cast<int64_t>(body.size()) <= kPutBytesMax);
  Plan plan{.verb = "write", .method = "PUT", .key = key};
  plan.body = body;
  plan.bytes = static_cast<int64_t>(body.size());
  if (condition.is_new) {
    plan.headers["if-none-match"] = "*";
  } else if (!condition.etag.empty()) {
    plan.headers["if-match"] = condition.etag;
  }
  TY_ASSIGN_OR_RETURN(const curl::Response response, Run(plan));
  return curl::HeaderOf(response, "etag");
}

absl::StatusOr<ObjectInfo> Client::Read(const std::string& key, const ReadRange& range,
                                        const Sink& sink) {
  TY_RETURN_IF_ERROR(CheckKey(key));
  int64_t next = range.offset;  // the first byte that the sink still needs
  int64_t end = -1;             // behind the last byte of the range, once that is known
  ObjectInfo info;
  Plan plan{.verb = "read", .method = "GET", .key = key};
  const auto ask = [&](Plan& asked) {
    if (next > 0 || range.size >= 0) {
      asked.headers["range"] = absl::StrCat(
          "bytes=", next, "-", range.size < 0 ? "" : absl::StrCat(range.offset + range.size - 1));
    }
    // Pieces of two versions of an object must not be put together.
    if (!info.etag.empty()) asked.headers["if-match"] = info.etag;
  };
  if (range.size == 0) return absl::InvalidArgumentError("an empty range cannot be read");
  ask(plan);
  // The size is not known before the first answer. Until then, the sink measures how long it takes.
  plan.bytes = kObjectBytesMax;
  // Learns from an answer what the object is. Returns an error if it is not what was asked for.
  const auto learn = [&](const curl::Response& response) -> absl::Status {
    const int64_t length = LengthOf(response);
    const std::string etag = curl::HeaderOf(response, "etag");
    int64_t total = length;
    if (plan.headers.contains("range")) {
      // "bytes 5-9/100"
      const std::string place = curl::HeaderOf(response, "content-range");
      const size_t slash = place.find('/');
      if (response.status != 206 || !absl::StartsWith(place, absl::StrCat("bytes ", next, "-")) ||
          slash == std::string::npos || !absl::SimpleAtoi(place.substr(slash + 1), &total)) {
        return absl::DataLossError(absl::StrCat("the store does not answer with the range of '",
                                                key, "' that was asked for: HTTP ", response.status,
                                                ", '", place, "'"));
      }
    }
    if (length < 0) {
      return absl::DataLossError(absl::StrCat("the store does not tell the size of '", key, "'"));
    }
    if (!info.etag.empty() && etag != info.etag) {
      return absl::DataLossError(absl::StrCat("'", key, "' has changed while it was read"));
    }
    info = {total, etag};
    end = next + length;
    return absl::OkStatus();
  };
  bool is_learned = false;
  absl::Status refusal;  // of ours, after which no other try makes sense
  absl::Duration begin = clock_.Uptime();
  int64_t begin_offset = next;
  plan.sink = [&](const curl::Response& response, absl::string_view piece) -> absl::Status {
    if (!is_learned) TY_RETURN_IF_ERROR(refusal = learn(response));
    is_learned = true;
    const int64_t moved = next - begin_offset;
    if (clock_.Uptime() - begin > TimeFor(moved)) {
      return absl::DeadlineExceededError(absl::StrCat("only ", moved, " bytes came in time"));
    }
    next += static_cast<int64_t>(piece.size());
    return refusal = sink(piece);
  };
  plan.before_retry = [&](Plan& asked) {
    if (!refusal.ok() || (end >= 0 && next >= end)) return true;
    is_learned = false;
    asked.has_advanced = next - begin_offset >= kAdvanceBytes;
    begin = clock_.Uptime();
    begin_offset = next;
    ask(asked);
    return false;
  };
  const auto response = Run(plan);
  TY_RETURN_IF_ERROR(refusal);
  TY_RETURN_IF_ERROR(response.status());
  // An empty object has no piece.
  if (end < 0) TY_RETURN_IF_ERROR(learn(*response));
  if (next != end) {
    return absl::DataLossError(absl::StrCat("'", key, "' ended after ", next, " bytes of ", end));
  }
  return info;
}

absl::StatusOr<Object> Client::Get(const std::string& key, int64_t bytes_max) {
  Object object;
  TY_ASSIGN_OR_RETURN(
      object.info, Read(key, {}, [&](absl::string_view piece) -> absl::Status {
        if (static_cast<int64_t>(object.content.size() + piece.size()) > bytes_max) {
          return absl::ResourceExhaustedError(
              absl::StrCat("'", key, "' has over ", bytes_max, " bytes, which are not accepted"));
        }
        object.content.append(piece.data(), piece.size());
        return absl::OkStatus();
      }));
  return object;
}

absl::StatusOr<ObjectInfo> Client::Head(const std::string& key) {
  TY_RETURN_IF_ERROR(CheckKey(key));
  Plan plan{.verb = "look at", .method = "HEAD", .key = key};
  TY_ASSIGN_OR_RETURN(const curl::Response response, Run(plan));
  const int64_t length = LengthOf(response);
  if (length < 0) {
    return absl::DataLossError(absl::StrCat("the store does not tell the size of '", key, "'"));
  }
  return ObjectInfo{length, curl::HeaderOf(response, "etag")};
}

absl::Status Client::Delete(const std::string& key) {
  TY_RETURN_IF_ERROR(CheckKey(key));
  Plan plan{.verb = "delete", .method = "DELETE", .key = key};
  const absl::Status status = Run(plan).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<ListPage> Client::List(const ListRequest& request) {
  Plan plan{.verb = "list", .method = "GET"};
  plan.query = {
      {"list-type", "2"}, {"prefix", request.prefix}, {"max-keys", absl::StrCat(request.keys_max)}};
  if (!request.after.empty()) plan.query.emplace_back("start-after", request.after);
  if (!request.token.empty()) plan.query.emplace_back("continuation-token", request.token);
  TY_ASSIGN_OR_RETURN(const curl::Response response, Run(plan));
  return ParseList(response.body);
}

absl::StatusOr<std::string> Client::CreateUpload(const std::string& key) {
  TY_RETURN_IF_ERROR(CheckKey(key));
  Plan plan{.verb = "begin to write", .method = "POST", .key = key, .query = {{"uploads", ""}}};
  TY_ASSIGN_OR_RETURN(const curl::Response response, Run(plan));
  return ParseUploadId(response.body);
}

absl::StatusOr<std::string> Client::UploadPart(const std::string& key, const std::string& upload,
                                               int number, absl::string_view body) {
  TY_CHECK(static_cast<int64_t>(body.size()) <= kPutBytesMax);
  Plan plan{.verb = absl::StrCat("write part ", number, " of"), .method = "PUT", .key = key};
  plan.query = {{"partNumber", absl::StrCat(number)}, {"uploadId", upload}};
  plan.body = body;
  plan.bytes = static_cast<int64_t>(body.size());
  TY_ASSIGN_OR_RETURN(const curl::Response response, Run(plan));
  std::string etag = curl::HeaderOf(response, "etag");
  if (etag.empty()) {
    return absl::DataLossError(absl::StrCat("the store gives no ETag for a part of '", key, "'"));
  }
  return etag;
}

absl::StatusOr<std::string> Client::CompleteUpload(const std::string& key,
                                                   const std::string& upload,
                                                   const std::vector<std::string>& etags) {
  const std::string body = CompleteText(etags);
  Plan plan{.verb = "complete", .method = "POST", .key = key, .query = {{"uploadId", upload}}};
  plan.body = body;
  // A store that needs long sends the status first, so that the connection stays.
  plan.judge = [](curl::Response& response) {
    const std::string code = ParseError(response.body).code;
    if (response.status != 200 || code.empty()) return;
    response.status = code == "InternalError" || code == "SlowDown" ? 503 : 400;
  };
  TY_ASSIGN_OR_RETURN(const curl::Response response, Run(plan));
  return ParseCompleted(response.body);
}

absl::Status Client::AbortUpload(const std::string& key, const std::string& upload) {
  Plan plan{.verb = "abort", .method = "DELETE", .key = key, .query = {{"uploadId", upload}}};
  plan.is_last_word = is_cancelled_;
  const absl::Status status = Run(plan).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

bool AreHonoured(Conditions conditions) {
  return conditions == Conditions::kHonoured || conditions == Conditions::kHonouredWithoutQuotes;
}

PutCondition Replaces(const std::string& etag, Conditions conditions) {
  if (conditions != Conditions::kHonouredWithoutQuotes) return {.etag = etag};
  return {.etag = std::string(absl::StripSuffix(absl::StripPrefix(etag, "\""), "\""))};
}

absl::StatusOr<Conditions> Probe(Client& client, const std::string& prefix, Rng& rng) {
  const std::string key = absl::StrCat(prefix, "probe-", MakeUuid(rng));
  TY_ASSIGN_OR_RETURN(const std::string etag, client.Put(key, "probe"));
  const auto found = [&]() -> absl::StatusOr<Conditions> {
    absl::Status status = client.Put(key, "probe", {.is_new = true}).status();
    if (status.ok()) return Conditions::kIgnored;
    if (absl::IsUnimplemented(status)) return Conditions::kRefused;
    if (!absl::IsAborted(status)) return status;
    // The content stays the same, and so does the ETag.
    for (const Conditions conditions :
         {Conditions::kHonoured, Conditions::kHonouredWithoutQuotes}) {
      status = client.Put(key, "probe", Replaces(etag, conditions)).status();
      if (!status.ok() && !absl::IsAborted(status)) return status;
      if (absl::IsAborted(status)) continue;
      const std::string wrong = "\"00000000000000000000000000000000\"";
      status = client.Put(key, "probe", Replaces(wrong, conditions)).status();
      if (absl::IsAborted(status)) return conditions;
      if (!status.ok()) return status;
      return Conditions::kIgnored;
    }
    return Conditions::kRefused;  // no ETag is the right one
  }();
  const absl::Status removed = client.Delete(key);
  TY_RETURN_IF_ERROR(found.status());
  TY_RETURN_IF_ERROR(removed);
  return found;
}

}  // namespace trainyard::s3
