# Every target does its own set-up: it needs Python 3.10 - 3.13 with venv, and a package registry.
PYTHON ?= python3
.DEFAULT_GOAL := help
