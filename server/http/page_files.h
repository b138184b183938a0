// Holds the files of server/http/page/dist, as they were when this program was built.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::http {

struct PageFile {
  absl::string_view path;  // "/assets/index-1a2b3c.js"
  absl::string_view content_type;
  absl::string_view bytes;
  absl::string_view compressed;  // the same with gzip
};

const std::vector<PageFile>& PageFiles();

// Makes the list. EmbedPage.cmake writes the source with it.
std::vector<PageFile> ListEmbeddedFiles();

}  // namespace trainyard::http
