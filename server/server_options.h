// Holds what the flags of trainyard-server set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "server/access/caller.h"
#include "server/bucket_flags.h"
#include "server/core/lifecycle/config.h"
#include "server/kubernetes/options.h"
#include "server/notify/addresses.h"
#include "server/retention.h"

namespace trainyard {

// The place at which all mail systems put it. A host without one sends no mail.
inline constexpr char kDefaultSendmail[] = "/usr/sbin/sendmail";

struct ServerOptions {
  std::string state_dir;
  // Each is unix:/path, or tls:HOST:PORT for other hosts. If there is no path, the server listens
  // on unix:<state_dir>/server.sock, too.
  std::vector<std::string> listen;
  LogFormat log_format = LogFormat::kText;
  core::Config config = {};
  // Starts with a database that is older than what was committed to it.
  bool accept_lost_commits = false;
  // Rules that say what stays of jobs that have ended.
  KeepRules keep = {};
  // Unix sockets accept all users of this host, and not only the one that runs the server.
  bool shared = false;
  // Members of these groups of the system are administrators and operators. Empty means none.
  std::string admin_group = {};
  std::string operator_group = {};
  // The role of everybody else.
  access::Role default_role = access::Role::kSubmitter;
  // The certificate of ports of TLS: names in the server's own, or the site's files.
  std::vector<std::string> tls_names = {};
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};
  // Entries of the audit log are deleted when they are this old; 0 keeps them for ever.
  int64_t keep_audit_us = int64_t{90} * 24 * 3600 * 1'000'000;
  // These say to which hosts and domains word of jobs may go, which program sends mail, and who its
  // sender is. Without a sender, the mail system decides.
  notify::AddressRules notify = {};
  std::string sendmail = kDefaultSendmail;
  std::string mail_from = {};
  // Pods of a cluster that may sign in, or be workers, with its tokens.
  kubernetes::Options kubernetes = {};
  // Listening sockets that the service manager has opened. One whose path is in `listen` is used in
  // place of a new one, and stays when the server ends, so that clients wait for the next one.
  std::vector<int> passed_sockets = {};
  // The variables of this process, as "NAME=value", for programs of clusters that it runs.
  std::vector<std::string> environment = {};
  // The folder of a bucket to which checkpoints are copied. Without a place, none is.
  BucketFlags bucket = {};
  // Folders of buckets (s3://BUCKET/FOLDER) from which users may take checkpoints in.
  std::vector<std::string> checkpoint_sources = {};
};

}  // namespace trainyard
