// Joins the rules with the descriptors of the services that this program contains.
#include "server/http/rpc_methods.h"

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
    methods.push_back({absl::StrCat("/trainyard.v1.", rule.rpc), method, !rule.changes,
                       method->server_streaming()});
  }
  return methods;
}

}  // namespace trainyard::http
