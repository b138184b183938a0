// The codes are those of gRPC, in lower case, but that "canceled" has one l.
#include "server/http/connect_error.h"

#include <google/protobuf/util/json_util.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/rpc/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace trainyard::http {
namespace {

std::string CodeText(absl::StatusCode code) {
  if (code == absl::StatusCode::kCancelled) return "canceled";
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

// Connect writes base64 without padding.
std::string Base64(absl::string_view bytes) {
  std::string text = absl::Base64Escape(bytes);
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

nlohmann::ordered_json DetailJson(const google::protobuf::Any& detail) {
  absl::string_view type = detail.type_url();
  type = type.substr(type.rfind('/') + 1);
  nlohmann::ordered_json json = {{"type", type}, {"value", Base64(detail.value())}};
  const auto* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(std::string(type));
  if (descriptor == nullptr) return json;
  const std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  std::string text;
  if (message->ParseFromString(detail.value()) &&
      google::protobuf::util::MessageToJsonString(*message, &text).ok()) {
    json["debug"] = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  }
  return json;
}

}  // namespace

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    default:
      return 500;
  }
}

std::string ErrorJson(const absl::Status& status) {
  const google::rpc::Status wire = rpc::ToStatusProto(status);
  nlohmann::ordered_json json = {{"code", CodeText(status.code())}, {"message", wire.message()}};
  for (const auto& detail : wire.details()) json["details"].push_back(DetailJson(detail));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Response ErrorResponse(const absl::Status& status) {
  return ErrorResponse(HttpStatusOf(status.code()), status);
}

Response ErrorResponse(int http_status, const absl::Status& status) {
  Response response;
  response.status = http_status;
  response.body = ErrorJson(status);
  if (http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (const auto delay = GetRetryDelay(status); delay.has_value()) {
    const absl::Duration seconds = absl::Ceil(*delay, absl::Seconds(1));
    response.headers.emplace_back("Retry-After", absl::StrCat(absl::ToInt64Seconds(seconds)));
  }
  return response;
}

}  // namespace trainyard::http
