// Declares the public data sets that `data fetch` knows, with their publishers' URLs and checksums.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::commands {

struct SourceFile {
  absl::string_view name;
  absl::string_view md5;  // the MD5 that the publisher or a well-known project gives for this file
};

struct DataSource {
  absl::string_view dataset;  // the name in data.dataset
  absl::string_view url;      // of the folder with the files
  std::vector<SourceFile> files;
};

// Returns one entry for each published data set of common/datasets.h.
const std::vector<DataSource>& DataSources();
// Returns the names of all data sets, as in "cifar10, cifar100".
std::string DataSourceNames();
// Returns null if the data set is unknown.
const DataSource* FindDataSource(absl::string_view dataset);

// Returns the URL of a file below `mirror`, which is a URL or a folder. If `mirror` is empty, the
// file is below the publisher's URL.
std::string SourceUrl(const DataSource& source, const SourceFile& file, const std::string& mirror);

}  // namespace trainyard::commands
