"""Many hosts on one machine: network namespaces that are cut off and killed under the load of chaos."""
