// Reads requests in the form of the Connect protocol.
#include "server/http/rpc_call.h"

#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/errors.h"
#include "common/base/strings.h"
#include "common/rpc/channel.h"
#include "server/http/connect_error.h"
#include "server/http/json.h"
#include "server/http/url.h"

namespace trainyard::http {
namespace {

constexpr char kJson[] = "application/json";
constexpr int64_t kTimeoutMsMax = int64_t{24} * 3600 * 1000;
constexpr size_t kUserBytesMax = 256;

std::string MediaType(absl::string_view content_type) {
  return absl::AsciiStrToLower(
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';'))));
}

absl::Status BadQuery(absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_QUERY", why);
}

// Returns the JSON in the query of a request by GET.
absl::StatusOr<std::string> MessageOfQuery(const Request& request) {
  const auto values = ParseQuery(request.query);
  if (!values.has_value()) {
    return BadQuery(
        "the query cannot be read; expected ?message= with JSON that is percent-encoded");
  }
  std::string message;
  for (const auto& [name, value] : *values) {
    if (name == "message") {
      message = value;
    } else if (name == "encoding") {
      if (value != "json") return BadQuery("encoding is not json, and nothing else is served");
    } else if (name != "connect") {
      return BadQuery(absl::StrCat("there is no parameter '", PlainText(name, 100),
                                   "'; expected message and encoding"));
    }
  }
  return message;
}

}  // namespace

std::unique_ptr<google::protobuf::Message> ReadMessage(const RpcMethod& method,
                                                       const ExchangePtr& exchange) {
  const Request& request = exchange->request();
  auto message = NewMessage(*method.descriptor->input_type());
  absl::Status status;
  if (request.method == "GET") {
    const auto json = MessageOfQuery(request);
    status = json.ok() ? ParseJson(*json, *message) : json.status();
  } else if (const std::string type = MediaType(request.Header("content-type")); type != kJson) {
    // A page of another site can make a browser post forms and plain text, but no JSON.
    exchange->Answer(ErrorResponse(
        415, MakeError(absl::StatusCode::kInvalidArgument, "CONTENT_TYPE",
                       absl::StrCat("the content type is '", PlainText(type, 100),
                                    "'; send JSON with Content-Type: application/json"))));
    return nullptr;
  } else {
    status = ParseJson(exchange->TakeBody().text, *message);
  }
  if (status.ok()) return message;
  exchange->Answer(ErrorResponse(status));
  return nullptr;
}

absl::Status FillContext(const Request& request, grpc::ClientContext& context) {
  const auto is_printable = [](absl::string_view text) {
    for (const char c : text) {
      if (!absl::ascii_isprint(static_cast<unsigned char>(c))) return false;
    }
    return true;
  };
  for (const char* name : {"authorization", "trainyard-as"}) {
    const absl::string_view value = request.Header(name);
    if (value.empty()) continue;
    if (!is_printable(value) || value.size() > kUserBytesMax) {
      return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_HEADER",
                       absl::StrCat("the header ", name, " cannot be read"));
    }
    context.AddMetadata(name, std::string(value));
  }
  const absl::string_view timeout = request.Header("connect-timeout-ms");
  if (timeout.empty()) return absl::OkStatus();
  int64_t ms = 0;
  if (!absl::SimpleAtoi(timeout, &ms) || ms <= 0 || ms > kTimeoutMsMax) {
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_HEADER",
                     absl::StrCat("Connect-Timeout-Ms is '", PlainText(std::string(timeout), 40),
                                  "'; expected milliseconds from 1 to ", kTimeoutMsMax));
  }
  rpc::SetTimeout(context, absl::Milliseconds(ms));
  return absl::OkStatus();
}

absl::Status NoChannel() {
  return absl::UnavailableError("the server has too many connections; try again");
}

grpc::ByteBuffer ToBuffer(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status FromBuffer(grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  grpc::Slice slice;
  if (buffer.DumpToSingleSlice(&slice).ok() &&
      message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::OkStatus();
  }
  return absl::InternalError("an answer of the services cannot be read");
}

}  // namespace trainyard::http
