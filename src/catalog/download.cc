#include "catalog/download.h"
