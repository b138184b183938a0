// The public data sets that `data fetch` knows, with the places where their publishers keep them
// and their checksums.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::commands {

struct SourceFile {
  absl::string_view name;
  absl::string_view md5;  // as published, where it is
};

struct DataSource {
  absl::string_view dataset;  // as data.dataset names it
  absl::string_view url;      // of the folder
  std::vector<SourceFile> files;
};

// One for each published data set of common/datasets.h.
const std::vector<DataSource>& DataSources();
// "cifar10, cifar100, ...".
std::string DataSourceNames();
// Returns null for a data set that is not known.
const DataSource* FindDataSource(absl::string_view dataset);

// The URL of a file below `mirror`, an URL or a folder; or below the publisher's where it is empty.
std::string SourceUrl(const DataSource& source, const SourceFile& file, const std::string& mirror);

}  // namespace trainyard::commands
