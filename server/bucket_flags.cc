// Opens the bucket that flags and environment describe.
#include "server/bucket_flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/s3/credentials.h"
#include "common/s3/web_identity.h"

namespace trainyard {
namespace {

// Returns the first text that is not empty.
const std::string& FirstOf(const std::string& first, const std::string& second) {
  return first.empty() ? second : first;
}

}  // namespace

void AddBucketFlags(CLI::App& word, BucketFlags& flags) {
  word.add_option("--s3_endpoint", flags.endpoint,
                  "https://HOST:PORT of a store other than AWS [AWS_ENDPOINT_URL_S3, "
                  "AWS_ENDPOINT_URL, ~/.aws/config]")
      ->type_name("URL");
  word.add_option("--s3_region", flags.region,
                  "The region of the bucket [AWS_REGION, AWS_DEFAULT_REGION, ~/.aws/config, "
                  "us-east-1]")
      ->type_name("REGION");
  word.add_option("--s3_ca", flags.authorities,
                  "Authorities that vouch for the store, in place of those of the system (PEM)")
      ->type_name("FILE");
}

void TakeDefaults(const BucketFlags& server, BucketFlags& flags) {
  flags.default_endpoint = server.endpoint;
  flags.default_region = server.region;
  flags.default_authorities = server.authorities;
}

absl::StatusOr<std::unique_ptr<s3::Client>> ConnectBucket(const BucketFlags& flags,
                                                          const std::string& bucket) {
  const s3::Variables variables = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto identity =
      std::make_shared<s3::WebIdentity>(variables, flags.authorities, *Clock::Real());
  const bool has_identity = s3::HasWebIdentity(variables);
  TY_ASSIGN_OR_RETURN(s3::Found found,
                      has_identity ? identity->Get() : s3::FindCredentials(variables));
  s3::ClientOptions options;
  if (!has_identity) {
    // Keys in a file may be replaced while the program runs. While the file cannot be read, the
    // store judges the old ones.
    options.find_credentials = [variables, old = found.credentials] {
      const auto now = s3::FindCredentials(variables);
      return now.ok() ? now->credentials : old;
    };
  } else {
    options.find_credentials = [identity]() -> absl::StatusOr<s3::Credentials> {
      TY_ASSIGN_OR_RETURN(s3::Found now, identity->Get());
      return std::move(now.credentials);
    };
  }
  options.endpoint = FirstOf(flags.endpoint, found.endpoint);
  std::string region = FirstOf(flags.region, found.region);
  options.authorities_file = flags.authorities;
  // Region and authorities of the server's store are wrong for any other one.
  if (options.endpoint.empty()) {
    options.endpoint = flags.default_endpoint;
    region = FirstOf(region, flags.default_region);
    options.authorities_file = FirstOf(flags.authorities, flags.default_authorities);
  }
  if (!region.empty()) options.region = region;
  options.bucket = bucket;
  options.credentials = std::move(found.credentials);
  return s3::Client::Create(std::move(options), *Clock::Real(), *Rng::Real());
}

absl::StatusOr<OpenedBucket> OpenBucket(const BucketFlags& flags, bool is_for_writing) {
  TY_ASSIGN_OR_RETURN(const s3::Location location, s3::ParseLocation(flags.place));
  OpenedBucket opened;
  TY_ASSIGN_OR_RETURN(opened.client, ConnectBucket(flags, location.bucket));
  if (is_for_writing) {
    TY_ASSIGN_OR_RETURN(opened.conditions,
                        s3::Probe(*opened.client, location.prefix, *Rng::Real()));
  }
  opened.store =
      std::make_unique<s3::ManifestStore>(*opened.client, location.prefix, opened.conditions);
  return opened;
}

void TellOfConditions(const OpenedBucket& bucket, const std::string& place) {
  if (s3::AreHonoured(bucket.conditions)) return;
  std::cout << "The store knows no conditional writes: only one server may write to " << place
            << std::endl;
}

}  // namespace trainyard
