// The flags of the server. Each has a default that suits a single machine.
#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <map>

#include "common/base/duration.h"
#include "common/base/flag_style.h"
#include "common/base/version.h"
#include "common/daemon/flag_file.h"
#include "common/s3/client.h"
#include "server/maintenance.h"

namespace trainyard {
namespace {

// Declares a duration with its unit. The default is shown as people write it.
void AddDuration(CLI::App& app, const std::string& name, int64_t& value_us,
                 const std::string& description) {
  const auto check = [](const std::string& text) {
    return std::string(ParseDuration(text).status().message());
  };
  app.add_option_function<std::string>(
         name,
         [&value_us](const std::string& text) {
           value_us = absl::ToInt64Microseconds(*ParseDuration(text));  // it was checked before
         },
         description)
      ->check(check)
      ->default_str(DurationText(absl::Microseconds(value_us)))
      ->type_name("DURATION");
}

// Declares a rule of what is kept.
void AddKeepRule(CLI::App& app, const std::string& name, KeepRule& rule,
                 const std::string& description) {
  const auto check = [](const std::string& text) {
    return std::string(ParseKeepRule(text).status().message());
  };
  app.add_option_function<std::string>(
         name, [&rule](const std::string& text) { rule = *ParseKeepRule(text); },  // it was checked
         description)
      ->check(check)
      ->default_str("forever")
      ->type_name("RULE");
}

// Declares the rule of an administrator about hosts.
void AddHostRule(CLI::App& app, const std::string& name, notify::HostRule& rule,
                 const std::string& description) {
  const auto check = [](const std::string& text) {
    return std::string(notify::ParseHostRule(text).status().message());
  };
  app.add_option_function<std::string>(
         name,
         [&rule](const std::string& text) {
           rule = *notify::ParseHostRule(text);
         },  // it was checked
         description)
      ->check(check)
      ->default_str("on")
      ->type_name("RULE");
}

void AddNotifyFlags(CLI::App& app, ServerOptions& options) {
  AddHostRule(
      app, "--notify_webhooks", options.notify.webhooks,
      "To which hosts webhooks of users may go: on, off, or names with commas "
      "(chat.lab.example,.slack.com). This host is meant only if it is named, and link-local "
      "addresses never are");
  AddHostRule(app, "--notify_mail", options.notify.mail,
              "To which domains mail may go: on, off, or names with commas");
  app.add_option("--sendmail", options.sendmail,
                 "The program that takes mail, as sendmail does; '' for no mail")
      ->capture_default_str()
      ->type_name("FILE");
  app.add_option("--mail_from", options.mail_from,
                 "The sender of mail; the mail system decides otherwise")
      ->type_name("ADDRESS");
}

void AddCheckpointBucketFlags(CLI::App& app, ServerOptions& options) {
  const auto check = [](const std::string& text) {
    return text.empty() ? std::string() : std::string(s3::ParseLocation(text).status().message());
  };
  app.add_option("--checkpoint_bucket", options.bucket.place,
                 "Copy each checkpoint to s3://BUCKET/FOLDER once it is committed. Each server "
                 "needs a folder of its own")
      ->check(check)
      ->type_name("PLACE");
  app.add_option("--checkpoint_sources", options.checkpoint_sources,
                 "Everybody who may submit can go on from the checkpoints below s3://BUCKET/FOLDER "
                 "that another server has copied there, with the keys of this one; may be given "
                 "several times")
      ->check(check)
      ->allow_extra_args(false)
      ->type_name("PLACE");
  AddBucketFlags(app, options.bucket);
}

// Declares the rules about service accounts of a cluster.
void AddKubernetesFlags(CLI::App& app, kubernetes::Options& options) {
  const auto add = [&app](const std::string& name, auto& rules, const auto& parse,
                          const std::string& description) {
    const auto check = [parse](const std::string& text) {
      return std::string(parse(text).status().message());
    };
    app.add_option_function<std::vector<std::string>>(
           name,
           [&rules, parse](const std::vector<std::string>& texts) {
             for (const std::string& text : texts) rules.push_back(*parse(text));  // it was checked
           },
           description)
        ->check(check)
        ->allow_extra_args(false)
        ->type_name("ACCOUNT");
  };
  add("--kubernetes_users", options.users, kubernetes::ParseUserRule,
      "Pods of this service account (NAMESPACE:NAME, or NAMESPACE:* for all of a namespace) sign "
      "in with a projected token of the audience 'trainyard', as the user NAME@NAMESPACE, or as "
      "USER with NAMESPACE:NAME=USER; may be given several times, and the first that fits counts");
  add("--kubernetes_workers", options.workers, kubernetes::ParseAccount,
      "Pods of this service account (NAMESPACE:NAME) join as workers without an invitation, with a "
      "projected token of the audience 'trainyard-worker', under the name of their pod or node; "
      "may be given several times");
}

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv, const std::string& default_state_dir) {
  constexpr int kUsage = 2;
  ParsedFlags flags;
  flags.options.state_dir = default_state_dir;
  CLI::App app("Accepts, queues and places training jobs, and remembers all of it.",
               "trainyard-server");
  app.set_version_flag("--version", std::string("trainyard-server ") + Version());
  AddFlagFile(app);
  app.add_option("--state_dir", flags.options.state_dir, "Everything that the server remembers")
      ->capture_default_str();
  app.add_option("--listen", flags.options.listen,
                 "unix:/path, or tls:HOST:PORT for other hosts, where all have to sign in; may be "
                 "given several times [unix:STATE_DIR/server.sock]")
      ->allow_extra_args(false);
  app.add_option("--tls_names", flags.options.tls_names,
                 "Names and addresses of this host in the certificate that the server makes for "
                 "itself; may be given several times")
      ->allow_extra_args(false)
      ->type_name("NAME");
  app.add_option("--tls_cert", flags.options.tls_cert,
                 "The site's certificate with those that signed it (PEM), in place of the "
                 "server's own; it is read again when it changes")
      ->type_name("FILE");
  app.add_option("--tls_key", flags.options.tls_key, "The key of --tls_cert (PEM)")
      ->type_name("FILE");
  app.add_option("--tls_client_ca", flags.options.tls_client_ca,
                 "Further authorities whose certificates workers may show (PEM)")
      ->type_name("FILE");
  app.add_flag("--shared", flags.options.shared,
               "Accept all users of this host, told apart by the kernel, and not only the one that "
               "runs the server");
  app.add_option("--admin_group", flags.options.admin_group,
                 "Group of the system whose members are administrators")
      ->type_name("GROUP");
  app.add_option("--operator_group", flags.options.operator_group,
                 "Group of the system whose members are operators")
      ->type_name("GROUP");
  const std::map<std::string, access::Role> roles = {{"none", access::Role::kNone},
                                                     {"viewer", access::Role::kViewer},
                                                     {"submitter", access::Role::kSubmitter}};
  app.add_option("--default_role", flags.options.default_role,
                 "Role of users who are in neither group, until `trainyard users set` gives them "
                 "another one: none, viewer or submitter [submitter]")
      ->transform(CLI::CheckedTransformer(roles));
  const std::map<std::string, LogFormat> formats = {{"text", LogFormat::kText},
                                                    {"json", LogFormat::kJson}};
  app.add_option("--log_format", flags.options.log_format, "text or json")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_flag("--accept_lost_commits", flags.options.accept_lost_commits,
               "Start with a database that has lost its last commits, by damage or because an "
               "older copy was restored");
  KeepRules& keep = flags.options.keep;
  AddKeepRule(app, "--keep_jobs", keep.jobs,
              "What stays of jobs that have ended: an age ('90d'), a number ('5000 jobs'), a size "
              "('500GiB'), or several of these with commas. Older jobs are deleted, with their "
              "logs, metrics and checkpoints, but never those with the tag 'keep' or with 'retain: "
              "forever'");
  AddKeepRule(app, "--keep_checkpoints", keep.checkpoints,
              "The same for their checkpoints alone; the jobs stay");
  AddKeepRule(app, "--keep_logs", keep.logs, "The same for their logs");
  AddKeepRule(app, "--keep_metrics", keep.metrics, "The same for their metrics");
  AddDuration(app, "--keep_audit", flags.options.keep_audit_us,
              "Delete entries of the audit log when they are this old; 0s keeps all of them");
  AddCheckpointBucketFlags(app, flags.options);
  AddNotifyFlags(app, flags.options);
  AddKubernetesFlags(app, flags.options.kubernetes);
  core::Config& config = flags.options.config;
  AddDuration(app, "--min_runtime", config.min_runtime_us,
              "A job is not preempted before it has run for this long");
  AddDuration(app, "--checkpoint_wait", config.checkpoint_wait_us,
              "Longest wait for the checkpoint before a preemption or a drain stops a job");
  AddDuration(app, "--grow_after", config.grow_after_us,
              "An elastic job keeps its size for at least this long before it grows");
  AddDuration(app, "--fair_share_half_life", config.usage_half_life_us,
              "For fair share, device time that was used this long ago counts half");
  AddDuration(app, "--overdue_after", config.overdue_after_us,
              "A job that has waited this long goes before fair share");
  AddMaintenance(app, flags.options.state_dir, flags.options.bucket, flags.task);
  try {
    std::vector<std::string> args = ReversedArgs(argc, argv, FlagStyle::kUnderscores);
    app.parse(args);
  } catch (const CLI::ParseError& error) {
    flags.exit_code = app.exit(error) == 0 ? 0 : kUsage;
  }
  return flags;
}

}  // namespace trainyard
