// Answers requests of S3 from a map.
#include "tests/testing/s3/fake_s3.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/s3/sign.h"

namespace trainyard::testing {
namespace {

constexpr char kBucket[] = "lab-bucket";
constexpr char kKeyId[] = "AKIDEXAMPLE";
constexpr char kSecret[] = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr size_t kHeadBytesMax = 64 << 10;
constexpr absl::Duration kSkewMax = absl::Minutes(15);
constexpr absl::Duration kDripPause = absl::Milliseconds(20);

std::string EtagOf(const std::string& content) {
  return absl::StrCat("\"", s3::HexSha256(content).substr(0, 32), "\"");
}

std::string Unescape(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      plain += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string XmlEscape(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

bool SendAll(int connection, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t done = send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (done <= 0) return false;
    text.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

}  // namespace

struct FakeS3::Request {
  std::string method;
  std::string path;  // as it came
  std::string key;
  s3::Query query;
  std::map<std::string, std::string> headers;
  std::string body;

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  bool HasBucketInHost() const {
    return absl::StartsWith(Header("host"), absl::StrCat(kBucket, "."));
  }
  std::optional<std::string> Value(absl::string_view name) const {
    for (const auto& [key_of_pair, value] : query) {
      if (key_of_pair == name) return value;
    }
    return std::nullopt;
  }
};

struct FakeS3::Answer {
  int status = 200;
  std::string body = {};
  std::map<std::string, std::string> headers = {};

  static Answer Error(int status, absl::string_view code, absl::string_view more = "") {
    return {status, absl::StrCat("<?xml version=\"1.0\"?><Error><Code>", code,
                                 "</Code><Message>the fake says so</Message>", more, "</Error>")};
  }
};

FakeS3::FakeS3(Options options)
    : options_(std::move(options)),
      socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  TY_CHECK(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  TY_CHECK(listen(socket_.get(), 64) == 0);
  socklen_t size = sizeof(address);
  TY_CHECK(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

FakeS3::~FakeS3() {
  const uint64_t one = 1;
  TY_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));  // it stays readable for all
  thread_.join();
  for (std::thread& connection : connections_) connection.join();
}

void FakeS3::AnswerRolesWith(std::string body) {
  const MutexLock lock(&mutex_);
  role_answer_ = std::move(body);
}

void FakeS3::Wake() {
  const uint64_t one = 1;
  TY_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one));
}

std::string FakeS3::endpoint() const {
  return absl::StrCat("http://127.0.0.1:", port_);
}

s3::ClientOptions FakeS3::ClientOptions() const {
  s3::ClientOptions options;
  options.endpoint = endpoint();
  options.region = options_.region;
  options.bucket = kBucket;
  options.credentials = {kKeyId, kSecret, ""};
  options.tries = 4;
  options.first_pause = absl::Milliseconds(1);
  options.longest_pause = absl::Milliseconds(5);
  return options;
}

void FakeS3::Inject(Fault fault, int count, std::string method, std::string key_part) {
  const MutexLock lock(&mutex_);
  faults_.push_back({fault, count, std::move(method), std::move(key_part)});
}

void FakeS3::FreezeLists() {
  const MutexLock lock(&mutex_);
  frozen_ = objects_;
}

void FakeS3::ThawLists() {
  const MutexLock lock(&mutex_);
  frozen_.reset();
}

void FakeS3::Write(const std::string& key, const std::string& content) {
  const MutexLock lock(&mutex_);
  objects_[key] = content;
}

void FakeS3::Remove(const std::string& key) {
  const MutexLock lock(&mutex_);
  objects_.erase(key);
}

std::map<std::string, std::string> FakeS3::Objects() const {
  const MutexLock lock(&mutex_);
  return objects_;
}

std::vector<std::string> FakeS3::Keys(const std::string& prefix) const {
  std::vector<std::string> keys;
  for (const auto& [key, content] : Objects()) {
    if (absl::StartsWith(key, prefix)) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> FakeS3::Requests() const {
  const MutexLock lock(&mutex_);
  return requests_;
}

int FakeS3::CountRequests(const std::string& part) const {
  const std::vector<std::string> requests = Requests();
  return static_cast<int>(
      std::count_if(requests.begin(), requests.end(),
                    [&](const std::string& request) { return absl::StrContains(request, part); }));
}

int FakeS3::OpenUploads() const {
  const MutexLock lock(&mutex_);
  return static_cast<int>(uploads_.size());
}

int FakeS3::ParallelMax() const {
  const MutexLock lock(&mutex_);
  return parallel_max_;
}

void FakeS3::Serve() {
  while (true) {
    pollfd waits[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    // A test that becomes another user interrupts all threads.
    if (poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0) return;
    const int connection = accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    connections_.emplace_back([this, connection] {
      ServeConnection(connection);
      close(connection);
    });
  }
}

bool FakeS3::ReadRequest(int connection, std::string& buffer, Request& request) {
  const auto read_more = [&] {
    pollfd waits[] = {{connection, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0) return false;
    char block[64 << 10];
    const ssize_t got = read(connection, block, sizeof(block));
    if (got <= 0) return false;
    buffer.append(block, static_cast<size_t>(got));
    return true;
  };
  size_t end;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (buffer.size() > kHeadBytesMax || !read_more()) return false;
  }
  request = {};
  const std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(buffer).substr(0, end), "\r\n");
  const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
  if (first.size() != 3) return false;
  request.method = first[0];
  const std::pair<std::string, std::string> target =
      absl::StrSplit(first[1], absl::MaxSplits('?', 1));
  request.path = target.first;
  for (const absl::string_view pair : absl::StrSplit(target.second, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    request.query.emplace_back(Unescape(parts.first), Unescape(parts.second));
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    request.headers[absl::AsciiStrToLower(parts.first)] =
        std::string(absl::StripAsciiWhitespace(parts.second));
  }
  size_t length = 0;
  absl::SimpleAtoi(request.Header("content-length"), &length);
  while (buffer.size() < end + 4 + length) {
    if (!read_more()) return false;
  }
  request.body = buffer.substr(end + 4, length);
  buffer.erase(0, end + 4 + length);
  absl::string_view key = request.path;
  if (!request.HasBucketInHost()) absl::ConsumePrefix(&key, absl::StrCat("/", kBucket));
  absl::ConsumePrefix(&key, "/");
  request.key = Unescape(key);
  return true;
}

void FakeS3::ServeConnection(int connection) {
  // Head and body go in two writes, between which the kernel would wait for an acknowledgement.
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::string buffer;
  Request request;
  while (ReadRequest(connection, buffer, request)) {
    {
      const MutexLock lock(&mutex_);
      const std::string query = s3::QueryText(request.query);
      requests_.push_back(
          absl::StrCat(request.method, " ", request.key, query.empty() ? "" : "?", query));
      parallel_max_ = std::max(parallel_max_, ++parallel_);
    }
    const std::optional<Fault> fault = TakeFault(request);
    Answer answer;
    bool goes_on = true;
    if (fault == Fault::kClose) {
      goes_on = false;
    } else if (fault == Fault::kHang) {
      pollfd waits[] = {{stop_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      while (poll(waits, 2, -1) < 0) continue;
      goes_on = false;
    } else if (fault == Fault::kInternalError) {
      answer = Answer::Error(500, "InternalError");
    } else if (fault == Fault::kSlowDown) {
      answer = Answer::Error(503, "SlowDown");
      answer.headers["Retry-After"] = "1";
    } else if (fault == Fault::kDenied) {
      answer = Answer::Error(403, "AccessDenied");
    } else if (fault == Fault::kErrorInside) {
      answer = Answer::Error(200, "InternalError");
    } else {
      answer = AnswerTo(request);
    }
    {
      const MutexLock lock(&mutex_);
      --parallel_;
    }
    if (!goes_on || !Send(connection, request, std::move(answer), fault)) return;
  }
}

std::optional<FakeS3::Fault> FakeS3::TakeFault(const Request& request) {
  const MutexLock lock(&mutex_);
  for (Injected& injected : faults_) {
    if (injected.count > 0 && (injected.method.empty() || injected.method == request.method) &&
        absl::StrContains(request.key, injected.key_part)) {
      --injected.count;
      return injected.fault;
    }
  }
  return std::nullopt;
}

bool FakeS3::Send(int connection, const Request& request, Answer answer,
                  std::optional<Fault> fault) {
  if (fault == Fault::kLoseAnswer) return false;
  if (fault == Fault::kWrongEtag) answer.headers["ETag"] = "\"damaged\"";
  if (fault == Fault::kWrongBytes && !answer.body.empty()) answer.body.back() ^= 1;
  std::string head = absl::StrCat(
      "HTTP/1.1 ", answer.status, " Fake\r\nDate: ",
      absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", Clock::Real()->Now(), absl::UTCTimeZone()),
      "\r\n");
  if (!answer.headers.contains("Content-Length")) {
    absl::StrAppend(&head, "Content-Length: ", answer.body.size(), "\r\n");
  }
  for (const auto& [name, value] : answer.headers) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  const std::string body = request.method == "HEAD" ? "" : answer.body;
  if (!SendAll(connection, head + "\r\n")) return false;
  if (fault == Fault::kCut) {
    SendAll(connection, absl::string_view(body).substr(0, body.size() / 2));
    return false;
  }
  if (fault == Fault::kDrip) {
    for (const char byte : body) {
      pollfd wait{stop_.get(), POLLIN, 0};
      const int timeout = static_cast<int>(absl::ToInt64Milliseconds(kDripPause));
      if (poll(&wait, 1, timeout) != 0 || !SendAll(connection, absl::string_view(&byte, 1))) {
        return false;
      }
    }
    return true;
  }
  return SendAll(connection, body);
}

std::optional<FakeS3::Answer> FakeS3::Refuse(const Request& request) {
  if (!request.HasBucketInHost() && request.path != absl::StrCat("/", kBucket) &&
      !absl::StartsWith(request.path, absl::StrCat("/", kBucket, "/"))) {
    return Answer::Error(404, "NoSuchBucket");
  }
  const std::string authorization = request.Header("authorization");
  const auto part_of = [&authorization](absl::string_view name) {
    const size_t begin = authorization.find(std::string(name));
    if (begin == std::string::npos) return std::string();
    const size_t from = begin + name.size();
    return authorization.substr(from, authorization.find(',', from) - from);
  };
  const std::vector<std::string> place = absl::StrSplit(part_of("Credential="), '/');
  if (place.size() != 5) return Answer::Error(403, "AccessDenied");
  if (place[0] != kKeyId) return Answer::Error(403, "InvalidAccessKeyId");
  if (place[2] != options_.region) {
    return Answer::Error(400, "AuthorizationHeaderMalformed",
                         absl::StrCat("<Region>", options_.region, "</Region>"));
  }
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%E4Y%m%dT%H%M%SZ", request.Header("x-amz-date"), &time, &error)) {
    return Answer::Error(403, "AccessDenied");
  }
  if (absl::AbsDuration(Clock::Real()->Now() - time) > kSkewMax) {
    return Answer::Error(403, "RequestTimeTooSkewed");
  }
  s3::UnsignedRequest sent{
      request.method, request.path, request.query, {}, request.Header("x-amz-content-sha256")};
  for (const absl::string_view name : absl::StrSplit(part_of("SignedHeaders="), ';')) {
    sent.headers[std::string(name)] = request.Header(std::string(name));
  }
  if (s3::AuthorizationOf(sent, {kKeyId, kSecret, ""}, {options_.region}, time) != authorization) {
    return Answer::Error(403, "SignatureDoesNotMatch");
  }
  if (s3::HexSha256(request.body) != sent.body_sha256) {
    return Answer::Error(400, "XAmzContentSHA256Mismatch");
  }
  return std::nullopt;
}

FakeS3::Answer FakeS3::AnswerTo(const Request& request) {
  if (request.path == "/" && request.method == "POST") return DoAssumeRole(request);
  if (auto refusal = Refuse(request)) return *std::move(refusal);
  const MutexLock lock(&mutex_);
  if (request.method == "PUT") return DoPut(request);
  if (request.method == "POST") return DoPost(request);
  if (request.method == "DELETE") {
    if (const auto upload = request.Value("uploadId")) {
      if (uploads_.erase(*upload) == 0) return Answer::Error(404, "NoSuchUpload");
    } else {
      objects_.erase(request.key);
    }
    return {204};
  }
  if (request.key.empty()) return DoList(request);
  return DoGet(request);
}

FakeS3::Answer FakeS3::DoAssumeRole(const Request& request) {
  for (const char* part :
       {"Action=AssumeRoleWithWebIdentity", "Version=2011-06-15",
        "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Flab", "WebIdentityToken=a.token%2B"}) {
    if (!absl::StrContains(request.body, part)) return Answer::Error(403, "AccessDenied");
  }
  const MutexLock lock(&mutex_);
  if (role_answer_.has_value()) return {200, *role_answer_};
  return {200, absl::StrCat("<AssumeRoleWithWebIdentityResponse "
                            "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                            "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>",
                            kKeyId, "</AccessKeyId><SecretAccessKey>", kSecret,
                            "</SecretAccessKey><SessionToken>session+token</SessionToken>",
                            "</Credentials></AssumeRoleWithWebIdentityResult>",
                            "</AssumeRoleWithWebIdentityResponse>")};
}

FakeS3::Answer FakeS3::DoPut(const Request& request) {
  const auto found = objects_.find(request.key);
  const std::string match = request.Header("if-match");
  const bool has_condition = !match.empty() || !request.Header("if-none-match").empty();
  if (has_condition && options_.conditions == s3::Conditions::kRefused) {
    return Answer::Error(501, "NotImplemented");
  }
  if (has_condition && s3::AreHonoured(options_.conditions)) {
    const bool holds =
        match.empty() ? found == objects_.end()
                      : found != objects_.end() &&
                            s3::Replaces(EtagOf(found->second), options_.conditions).etag == match;
    if (!holds) return Answer::Error(412, "PreconditionFailed");
  }
  if (const auto upload = request.Value("uploadId")) {
    const auto parts = uploads_.find(*upload);
    int number = 0;
    if (parts == uploads_.end()) return Answer::Error(404, "NoSuchUpload");
    if (!absl::SimpleAtoi(request.Value("partNumber").value_or(""), &number) || number < 1) {
      return Answer::Error(400, "InvalidArgument");
    }
    parts->second[number] = request.body;
  } else {
    objects_[request.key] = request.body;
  }
  return {200, "", {{"ETag", EtagOf(request.body)}}};
}

FakeS3::Answer FakeS3::DoGet(const Request& request) {
  const auto found = objects_.find(request.key);
  if (found == objects_.end()) return Answer::Error(404, "NoSuchKey");
  const std::string& content = found->second;
  const std::string etag = EtagOf(content);
  const std::string match = request.Header("if-match");
  if (!match.empty() && match != etag) return Answer::Error(412, "PreconditionFailed");
  Answer answer{200, content, {{"ETag", etag}}};
  const std::string asked_range = request.Header("range");
  absl::string_view range = asked_range;
  if (absl::ConsumePrefix(&range, "bytes=")) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(range, '-');
    size_t begin = 0;
    size_t last = content.size() - 1;
    if (!absl::SimpleAtoi(ends.first, &begin) || begin >= content.size()) {
      return Answer::Error(416, "InvalidRange");
    }
    if (size_t asked = 0; absl::SimpleAtoi(ends.second, &asked)) last = std::min(last, asked);
    answer.status = 206;
    answer.body = content.substr(begin, last - begin + 1);
    answer.headers["Content-Range"] = absl::StrCat("bytes ", begin, "-", last, "/", content.size());
  }
  if (request.method == "HEAD") {
    answer.headers["Content-Length"] = absl::StrCat(answer.body.size());
  }
  return answer;
}

FakeS3::Answer FakeS3::DoList(const Request& request) {
  const std::string prefix = request.Value("prefix").value_or("");
  std::string after = request.Value("start-after").value_or("");
  if (const auto token = request.Value("continuation-token")) after = *token;
  size_t keys_max = 1000;
  absl::SimpleAtoi(request.Value("max-keys").value_or("1000"), &keys_max);
  std::string body;
  size_t count = 0;
  std::string last;
  bool has_more = false;
  for (const auto& [key, content] : frozen_.has_value() ? *frozen_ : objects_) {
    if (!absl::StartsWith(key, prefix) || key <= after) continue;
    if (count == keys_max) {
      has_more = true;
      break;
    }
    ++count;
    last = key;
    absl::StrAppend(&body, "<Contents><Key>", XmlEscape(key), "</Key><LastModified>",
                    "2026-11-28T10:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>",
                    content.size(), "</Size></Contents>");
  }
  return {200, absl::StrCat("<?xml version=\"1.0\"?><ListBucketResult "
                            "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><IsTruncated>",
                            has_more ? "true" : "false", "</IsTruncated>",
                            has_more ? absl::StrCat("<NextContinuationToken>", XmlEscape(last),
                                                    "</NextContinuationToken>")
                                     : "",
                            body, "</ListBucketResult>")};
}

FakeS3::Answer FakeS3::DoPost(const Request& request) {
  if (request.Value("uploads").has_value()) {
    const std::string id = absl::StrCat("upload/", ++uploads_made_, "+");
    uploads_[id];
    return {200, absl::StrCat("<InitiateMultipartUploadResult><UploadId>", id,
                              "</UploadId></InitiateMultipartUploadResult>")};
  }
  const auto parts = uploads_.find(request.Value("uploadId").value_or(""));
  if (parts == uploads_.end()) return Answer::Error(404, "NoSuchUpload");
  std::string content;
  std::string wanted;
  for (const auto& [number, part] : parts->second) {
    const bool is_last = number == parts->second.rbegin()->first;
    if (!is_last && static_cast<int64_t>(part.size()) < s3::kPartBytesMin) {
      return Answer::Error(400, "EntityTooSmall");
    }
    absl::StrAppend(&wanted, number, " ", EtagOf(part), ";");
    content += part;
  }
  std::string named;
  const std::string body = absl::StrCat(request.body);
  for (size_t at = 0; (at = body.find("<PartNumber>", at)) != std::string::npos; ++at) {
    const size_t number = at + 12;
    const size_t etag = body.find("<ETag>", at) + 6;
    absl::StrAppend(&named, body.substr(number, body.find('<', number) - number), " ",
                    body.substr(etag, body.find('<', etag) - etag), ";");
  }
  if (named != wanted) return Answer::Error(400, "InvalidPart");
  objects_[request.key] = content;
  uploads_.erase(parts);
  return {200, absl::StrCat("<CompleteMultipartUploadResult><ETag>&quot;all&quot;</ETag>",
                            "</CompleteMultipartUploadResult>")};
}

}  // namespace trainyard::testing
