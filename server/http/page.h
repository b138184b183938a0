// Serves the page of the browser: its files are in the program, since they are compiled in.
#pragma once

#include "server/http/routes.h"

namespace trainyard::http {

// Serves the files at their paths, and the first page at all paths at which a browser asks for one:
// the script in it reads the address, and shows the view of that name.
void AddPage(Routes& routes);

}  // namespace trainyard::http
