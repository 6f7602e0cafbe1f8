#include "cli/app.h"

int main(int argc, char** argv) { return dovetail::cli::run(argc, argv); }
