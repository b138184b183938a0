// Declares the flags that name a folder of a bucket, for the words that use one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/s3/client.h"
#include "common/s3/manifest_store.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trainyard {

struct BucketFlags {
  std::string place;  // s3://BUCKET/FOLDER
  std::string endpoint;
  std::string region;
  std::string authorities;
  // A word of the command line uses the store of the server's own bucket, if neither a flag nor the
  // environment names one.
  std::string default_endpoint = {};
  std::string default_region = {};
  std::string default_authorities = {};
};

// Adds --s3_endpoint, --s3_region and --s3_ca.
void AddBucketFlags(CLI::App& word, BucketFlags& flags);

// Takes over what a word does not say itself from the flags of the server.
void TakeDefaults(const BucketFlags& server, BucketFlags& flags);

// A bucket that is in use. The store borrows the client.
struct OpenedBucket {
  std::unique_ptr<s3::Client> client;
  std::unique_ptr<s3::ManifestStore> store;
  s3::Conditions conditions = s3::Conditions::kHonoured;
};

// Makes a client of a bucket, whatever the place in the flags is. It finds the keys where the tools
// of AWS do.
absl::StatusOr<std::unique_ptr<s3::Client>> ConnectBucket(const BucketFlags& flags,
                                                          const std::string& bucket);

// Opens the place. A bucket that is opened for writing is asked first how
// it treats conditions.
absl::StatusOr<OpenedBucket> OpenBucket(const BucketFlags& flags, bool is_for_writing);

// Tells the user of a bucket in which two writers do not notice each other.
void TellOfConditions(const OpenedBucket& bucket, const std::string& place);

}  // namespace trainyard
