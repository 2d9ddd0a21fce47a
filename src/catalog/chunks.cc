#include "catalog/chunks.h"
