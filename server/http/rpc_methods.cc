// Joins the rules with the descriptors of the services that this program contains.
#include "server/http/rpc_methods.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/access/rules.h"

namespace trainyard::http {

std::vector<RpcMethod> RpcMethods() {
  std::vector<RpcMethod> methods;
  for (const access::Rule& rule : access::kRules) {
    if (rule.party != access::Party::kUser) continue;
    const std::vector<std::string> parts = absl::StrSplit(rule.rpc, '/');
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        absl::StrCat("trainyard.v1.", parts[0]));
    if (service == nullptr) continue;  // the program has no such service
    const auto* method = service->FindMethodByName(parts[1]);
    if (method == nullptr || method->client_streaming()) continue;
    // The audit log has no entry for each piece of a content, but a GET must not store one.
    const absl::string_view rpc = rule.rpc;
    const bool may_be_got = !rule.changes && rpc != "CodeService/UploadCode" &&
                            !absl::StartsWith(rpc, "BundleService/Append");
    methods.push_back(
        {absl::StrCat("/trainyard.v1.", rule.rpc), method, may_be_got, method->server_streaming()});
  }
  return methods;
}

}  // namespace trainyard::http
