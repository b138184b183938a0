// Walks through the YAML tree of the file.
#include "server/provision/kubernetes/kubeconfig.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/yaml/yaml_tree.h"

namespace trainyard::provision::kubernetes {
namespace {

using yaml::YamlNode;

constexpr int64_t kPemBytesMax = 64 * 1024;

absl::Status Unusable(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the kubeconfig cannot be used: ", why));
}

// Returns the value of a key, or an empty node.
const YamlNode& MemberOf(const YamlNode& map, absl::string_view key) {
  static const YamlNode& none = *new YamlNode();
  for (const yaml::YamlEntry& entry : map.entries) {
    if (entry.key == key) return entry.value;
  }
  return none;
}

const std::string& TextOf(const YamlNode& map, absl::string_view key) {
  return MemberOf(map, key).text;
}

// Finds an entry of one of the lists, by its name. Returns its part `kind`.
absl::StatusOr<const YamlNode*> Find(const YamlNode& root, absl::string_view kind,
                                     const std::string& name) {
  for (const YamlNode& entry : MemberOf(root, absl::StrCat(kind, "s")).elements) {
    if (TextOf(entry, "name") == name) return &MemberOf(entry, kind);
  }
  return Unusable(absl::StrCat("it has no ", kind, " of the name that ",
                               kind == "context" ? "was asked for" : "the context names"));
}

// Returns PEM text that stands in the file itself (KEY-data), or in another one.
absl::StatusOr<std::string> ReadPem(const YamlNode& map, const std::string& key,
                                    const std::string& folder) {
  const std::string& data = TextOf(map, key + "-data");
  if (!data.empty()) {
    std::string pem;
    if (!absl::Base64Unescape(data, &pem)) {
      return Unusable(absl::StrCat(key, "-data is not in base64"));
    }
    return pem;
  }
  const std::string& path = TextOf(map, key);
  if (path.empty()) return "";
  const auto pem =
      ReadFile(absl::StartsWith(path, "/") ? path : JoinPath(folder, path), kPemBytesMax);
  if (!pem.ok()) return Unusable(absl::StrCat("the file of ", key, " cannot be read"));
  if (!absl::StrContains(*pem, "-----BEGIN ")) {
    return Unusable(absl::StrCat("the file of ", key, " has no PEM text"));
  }
  return pem;
}

absl::Status ReadCluster(const YamlNode& cluster, const std::string& folder,
                         trainyard::kubernetes::Access& access) {
  access.url = TextOf(cluster, "server");
  while (absl::EndsWith(access.url, "/")) access.url.pop_back();
  if (!absl::StartsWith(access.url, "https://")) {
    return Unusable("its cluster has no server that begins with https://");
  }
  if (TextOf(cluster, "insecure-skip-tls-verify") == "true") {
    return Unusable(
        "insecure-skip-tls-verify would show our token to anybody; name the authority with "
        "certificate-authority or certificate-authority-data");
  }
  for (const char* key : {"tls-server-name", "proxy-url"}) {
    if (!TextOf(cluster, key).empty()) {
      return Unusable(absl::StrCat(key,
                                   " is not supported; use a server that can be reached and "
                                   "verified by its own address"));
    }
  }
  TY_ASSIGN_OR_RETURN(access.authorities, ReadPem(cluster, "certificate-authority", folder));
  return absl::OkStatus();
}

absl::Status ReadUser(const YamlNode& user, const std::string& folder,
                      trainyard::kubernetes::Access& access) {
  for (const char* key : {"exec", "auth-provider"}) {
    if (MemberOf(user, key).kind != YamlNode::Kind::kNull) {
      return Unusable(absl::StrCat(
          "its user gets tokens by ", key,
          ", and the server runs no program that a file names; make a service account for it, and "
          "write its token into a file that tokenFile names"));
    }
  }
  for (const char* key : {"username", "password", "as"}) {
    if (!TextOf(user, key).empty()) {
      return Unusable(absl::StrCat("'", key,
                                   "' of its user is not supported; use a token or a "
                                   "client certificate"));
    }
  }
  // A file of a token goes before a token, which is kubectl's rule.
  const std::string& file = TextOf(user, "tokenFile");
  if (!file.empty()) {
    access.token_file = absl::StartsWith(file, "/") ? file : JoinPath(folder, file);
  } else {
    access.token = TextOf(user, "token");
  }
  TY_ASSIGN_OR_RETURN(access.certificate, ReadPem(user, "client-certificate", folder));
  TY_ASSIGN_OR_RETURN(access.key, ReadPem(user, "client-key", folder));
  if (access.certificate.empty() != access.key.empty()) {
    return Unusable("its user has only one of client-certificate and client-key");
  }
  if (access.token_file.empty() && access.token.empty() && access.certificate.empty()) {
    return Unusable("its user has no token, tokenFile or client-certificate");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Kubeconfig> ParseKubeconfig(absl::string_view text, absl::string_view context,
                                           const std::string& folder) {
  const yaml::YamlDocument document = yaml::ParseYaml(text);
  const YamlNode& root = document.root;
  if (!document.mistakes.empty() || TextOf(root, "kind") != "Config") {
    return Unusable("it is no YAML of the kind Config");
  }
  const std::string name = context.empty() ? TextOf(root, "current-context") : std::string(context);
  if (name.empty()) return Unusable("it has no current-context; say --context");
  TY_ASSIGN_OR_RETURN(const YamlNode* chosen, Find(root, "context", name));
  Kubeconfig config;
  config.space = TextOf(*chosen, "namespace");
  TY_ASSIGN_OR_RETURN(const YamlNode* cluster, Find(root, "cluster", TextOf(*chosen, "cluster")));
  TY_RETURN_IF_ERROR(ReadCluster(*cluster, folder, config.access));
  TY_ASSIGN_OR_RETURN(const YamlNode* user, Find(root, "user", TextOf(*chosen, "user")));
  TY_RETURN_IF_ERROR(ReadUser(*user, folder, config.access));
  return config;
}

absl::StatusOr<Kubeconfig> ReadKubeconfig(const std::string& path, absl::string_view context) {
  if (!absl::StartsWith(path, "/")) {
    return Unusable("its path on the server's host has to begin with /");
  }
  const auto file = OpenRegularFile(path, O_RDONLY);
  struct stat info {};
  if (!file.ok() || fstat(file->get(), &info) != 0) {
    return Unusable("there is no such file on the server's host that the server may read");
  }
  const bool is_trusted = info.st_uid == geteuid() || info.st_uid == 0;
  if (!is_trusted || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Unusable("users other than the server's own and root can write it");
  }
  TY_ASSIGN_OR_RETURN(const std::string text,
                      ReadRegularFile(path, static_cast<int64_t>(yaml::kFileBytesMax)));
  return ParseKubeconfig(text, context, path.substr(0, path.rfind('/')));
}

}  // namespace trainyard::provision::kubernetes
