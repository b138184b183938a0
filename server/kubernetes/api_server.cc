// Speaks JSON with the API server. Whatever does not have the form of an answer is none.
#include "server/kubernetes/api_server.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::kubernetes {
namespace {

using nlohmann::json;

// A pod has at most 1.5 MiB, since etcd takes no more.
constexpr int64_t kAnswerBytesMax = int64_t{2} << 20;
constexpr char kReviews[] = "/apis/authentication.k8s.io/v1/tokenreviews";
constexpr char kPodName[] = "authentication.kubernetes.io/pod-name";
constexpr char kPodUid[] = "authentication.kubernetes.io/pod-uid";
constexpr char kNodeName[] = "authentication.kubernetes.io/node-name";

absl::Status NoAnswer(absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("the API server of the cluster cannot be asked: ", why));
}

// Returns a member, or an empty object if there is none.
json MemberOf(const json& object, const char* name) {
  if (!object.is_object()) return json::object();
  const auto found = object.find(name);
  return found == object.end() ? json::object() : *found;
}

std::string TextOf(const json& object, const char* name) {
  const json member = MemberOf(object, name);
  return member.is_string() ? member.get<std::string>() : "";
}

// Returns the only text of a list. Further facts about users are such lists.
std::string OnlyTextOf(const json& object, const char* name) {
  const json member = MemberOf(object, name);
  const bool is_one = member.is_array() && member.size() == 1 && member[0].is_string();
  return is_one ? member[0].get<std::string>() : "";
}

absl::Status ErrorOf(int status) {
  switch (status) {
    case 401:
      return NoAnswer(
          "it does not accept the token of the server's own pod; apply the component tokens of "
          "deploy/kubernetes");
    case 403:
      return NoAnswer(
          "the service account of the server may not create tokenreviews; apply the component "
          "tokens of deploy/kubernetes");
    default:
      return NoAnswer(absl::StrCat("it answers with the status ", status));
  }
}

bool IsPathWord(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
  });
}

}  // namespace

ApiServer::ApiServer(std::string url, const std::string& folder, absl::Duration timeout)
    : client_(AccessOfPod(std::move(url), folder), {timeout, kAnswerBytesMax}, is_stopping_) {}

absl::StatusOr<curl::Response> ApiServer::Call(const std::string& method, const std::string& path,
                                               const std::string& body) {
  auto response = client_.Call(method, path, body);
  if (!response.ok()) return NoAnswer(response.status().message());
  return response;
}

absl::StatusOr<ReviewedToken> ApiServer::ReviewToken(absl::string_view token,
                                                     absl::string_view audience) {
  const json request = {
      {"apiVersion", "authentication.k8s.io/v1"},
      {"kind", "TokenReview"},
      {"spec",
       {{"token", std::string(token)}, {"audiences", json::array({std::string(audience)})}}}};
  TY_ASSIGN_OR_RETURN(const curl::Response response, Call("POST", kReviews, request.dump()));
  if (response.status != 200 && response.status != 201) return ErrorOf(response.status);
  const json answer = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const json status = MemberOf(answer, "status");
  if (TextOf(answer, "kind") != "TokenReview" || !status.is_object() || status.empty()) {
    return NoAnswer("its answer is no TokenReview");
  }
  const json audiences = MemberOf(status, "audiences");
  // An API server that does not know audiences names none. It would vouch for any token.
  const bool is_for_us =
      audiences.is_array() &&
      std::any_of(audiences.begin(), audiences.end(), [&](const json& each) {
        return each.is_string() && each.get_ref<const std::string&>() == audience;
      });
  if (MemberOf(status, "authenticated") != json(true) || !is_for_us) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_NOT_OF_CLUSTER",
                     "the cluster does not vouch for the token; a pod may have ended, and its "
                     "token with it");
  }
  const json user = MemberOf(status, "user");
  const json extra = MemberOf(user, "extra");
  return ReviewedToken{TextOf(user, "username"), OnlyTextOf(extra, kPodName),
                       OnlyTextOf(extra, kPodUid), OnlyTextOf(extra, kNodeName)};
}

absl::StatusOr<std::string> ApiServer::NodeOf(absl::string_view space, const ReviewedToken& pod) {
  if (!IsPathWord(space) || !IsPathWord(pod.pod)) return "";
  TY_ASSIGN_OR_RETURN(
      const curl::Response response,
      Call("GET", absl::StrCat("/api/v1/namespaces/", space, "/pods/", pod.pod), ""));
  if (response.status == 403 || response.status == 404) return "";
  if (response.status != 200) return ErrorOf(response.status);
  const json answer = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (TextOf(answer, "kind") != "Pod") return NoAnswer("its answer is no Pod");
  // Another pod may have the name by now.
  if (TextOf(MemberOf(answer, "metadata"), "uid") != pod.pod_uid) return "";
  return TextOf(MemberOf(answer, "spec"), "nodeName");
}

}  // namespace trainyard::kubernetes
